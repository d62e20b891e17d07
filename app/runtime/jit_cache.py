"""Where compiled kernels are kept between two starts.

numba notices a change only in the file a kernel stands in, but kernels are made of parts from other
files too: so each state of the core has a cache of its own. `NUMBA_CACHE_DIR` has the last word.
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
    home = Path(os.environ.get("NUMBA_CACHE_DIR") or directory())
    if home.is_dir() and not os.access(home, os.W_OK):
        home = linked(home)
        atexit.register(_forget, home, os.getpid())
    os.environ["NUMBA_CACHE_DIR"] = str(home)


def linked(home: Path) -> Path:
    """A folder in which numba can write, with links to all that a cache has.

    numba refuses to start with a cache that it cannot write, as that of a read-only image is, even
    if it has everything. What is compiled nevertheless is a file here, and no link.
    """
    copy = Path(tempfile.mkdtemp(prefix=PREFIX))
    shutil.copytree(home, copy, copy_function=os.symlink, dirs_exist_ok=True)
    for folder in (copy, *copy.iterdir()):
        folder.chmod(0o700)  # copytree gives them the mode of those that could not be written
    return copy


def _forget(copy: Path, owner: int) -> None:
    """Children use it too, and end sooner; a forked one must leave it alone."""
    if os.getpid() == owner:
        shutil.rmtree(copy, ignore_errors=True)
