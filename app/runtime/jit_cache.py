"""The cache of compiled kernels.

numba checks only the file of a kernel for changes, but kernels inline functions from other files.
So each version of the `ranking` package has a separate cache. `NUMBA_CACHE_DIR` overrides it.
"""

import atexit
import os
import shutil
import tempfile
import zlib
from pathlib import Path

CORE = Path(__file__).parents[1] / "ranking"
PREFIX = "solar-kernels-"


def directory() -> Path:
    """Return the cache directory: in the package, or in the user's cache if that is read-only."""
    checksum = 0
    for path in sorted(CORE.rglob("*.py")):
        checksum = zlib.crc32(path.read_bytes(), checksum)
    home = CORE / "__pycache__"
    if not os.access(CORE, os.W_OK):
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "solar"
    return home / f"kernels-{checksum:08x}"


def use() -> None:
    """Set numba's cache directory; call it before the import of numba."""
    home = Path(os.environ.get("NUMBA_CACHE_DIR") or directory())
    if home.is_dir() and not os.access(home, os.W_OK):
        home = linked(home)
        atexit.register(_remove, home, os.getpid())
    os.environ["NUMBA_CACHE_DIR"] = str(home)


def linked(home: Path) -> Path:
    """Return a writable copy of a read-only cache, made of symbolic links.

    numba refuses a read-only cache, such as that of a read-only image, even if it is complete.
    Newly compiled kernels become regular files in the copy.
    """
    copy = Path(tempfile.mkdtemp(prefix=PREFIX))
    shutil.copytree(home, copy, copy_function=os.symlink, dirs_exist_ok=True)
    for folder in (copy, *copy.iterdir()):
        folder.chmod(0o700)  # copytree copies the read-only mode
    return copy


def _remove(copy: Path, owner: int) -> None:
    """Remove the copy, but not from a forked child."""
    if os.getpid() == owner:
        shutil.rmtree(copy, ignore_errors=True)
