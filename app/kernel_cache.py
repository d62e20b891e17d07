"""Where compiled kernels are kept between two starts.

numba notices a change only in the file a kernel stands in, but kernels are made of parts from other
files too: so each state of the core has a cache of its own. `NUMBA_CACHE_DIR` has the last word.
"""

import os
import zlib
from pathlib import Path

CORE = Path(__file__).parent / "ranking"


def directory() -> Path:
    """Next to the core, or, where that cannot be written, in the user's cache."""
    state = 0
    for path in sorted(CORE.rglob("*.py")):
        state = zlib.crc32(path.read_bytes(), state)
    home = CORE / "__pycache__"
    if not os.access(CORE, os.W_OK):
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "solar"
    return home / f"kernels-{state:08x}"


def use() -> None:
    """Tell numba, before it is imported."""
    os.environ.setdefault("NUMBA_CACHE_DIR", str(directory()))
