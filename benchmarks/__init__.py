"""Benchmarks of SOLAR against C, BLAS and other libraries.

`timing` measures and `report` prints. `kernels`, `peers`, `batch`, `figure3`, `start`, `store`,
`fleets`, `service`, `training`, `groups` and `clicks` are the sections of the report. Three modules
are references: `native` (in C) for `kernels`, `dlib` for `batch`, `pdgd` for `clicks`. `app`
imports nothing from here.
"""

import os

# One thread for all candidates. BLAS reads these at import, so set them before all imports.
os.environ |= {
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}
