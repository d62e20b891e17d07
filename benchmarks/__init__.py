"""How fast SOLAR is, side by side with C, with BLAS and with other libraries.

`timing` measures, `report` prints, and each of `kernels`, `peers`, `batch`, `figure3`, `start`,
`store`, `service`, `training` and `clicks` is one section of the report; `native` is the C that
`kernels` is measured against, `dlib` what `batch` is, `pdgd` what `clicks` is. Nothing here is
imported by `app`.
"""

import os

# One thread for everyone: BLAS reads these when it is loaded, so they stand before all imports.
os.environ |= {
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}
