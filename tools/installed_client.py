"""Build the wheel of solar-client, install it alone in a new environment, and use it there.

The environment has an unrelated package `app`, as many applications have. A user's script is
checked with `mypy --strict` and run against a service.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.api.services import ROOT, serving

SCRIPT = Path(__file__).parent / "client_script.py"
BIN = Path(sys.executable).parent


def environment(folder: Path) -> Path:
    """Install the wheel in a new environment; return its Python."""
    build = [sys.executable, "-m", "flit_core.wheel", "--outdir", str(folder)]
    subprocess.run([*build, str(ROOT / "clients" / "python")], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    python = folder / "env" / "bin" / "python"
    uv = str(BIN / "uv")
    made = [uv, "venv", "--quiet", "--python", sys.executable, str(folder / "env")]
    subprocess.run(made, check=True)
    versions = ["--constraint", str(ROOT / "requirements" / "run.txt")]
    install = [uv, "pip", "install", "--quiet", "--python", str(python), *versions, str(wheel)]
    subprocess.run(install, check=True)
    (packages,) = (folder / "env" / "lib").glob("python*/site-packages")
    (packages / "app").mkdir()
    (packages / "app" / "__init__.py").write_text("OF_THE_USER = True\n")
    (packages / "app" / "py.typed").touch()
    return python


def main() -> None:
    """Check the types of the script, and run it."""
    with (
        serving() as running,
        tempfile.TemporaryDirectory(prefix="solar-client-") as name,
    ):
        folder = Path(name)
        python = environment(folder)
        shutil.copy(SCRIPT, folder / "script.py")
        options = ["--strict", "--config-file=", f"--python-executable={python}"]
        subprocess.run([BIN / "mypy", *options, "script.py"], cwd=folder, check=True)
        subprocess.run([python, "script.py", running.url], cwd=folder, check=True)


if __name__ == "__main__":
    main()
