"""Generate a client from a running service's OpenAPI document, type-check it and use it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx

from app.api.auth import new_key
from tests.api.services import serving

SESSION = Path(__file__).parent / "client_session.py"
#: Body types that the generator does not support; each has a JSON form.
UNSUPPORTED = {"application/msgpack", "application/gzip", "application/x-xz", "text/plain"}
#: By default the generator calls ruff, whose fixes change types so that mypy fails.
OPTIONS = "post_hooks: []\n"


def generate(url: str, folder: Path) -> None:
    """Write the package `solar_api`; a warning about anything but UNSUPPORTED is an error."""
    (folder / "options.yml").write_text(OPTIONS)
    (folder / "openapi.json").write_bytes(
        httpx.get(f"{url}/openapi.json", trust_env=False).raise_for_status().content
    )
    command = "generate --path openapi.json --config options.yml --meta none"
    ran = subprocess.run(
        ["openapi-python-client", *command.split(), "--output-path", "solar_api"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    warned = len(re.findall(r"^(?:WARNING|ERROR)", ran.stderr, re.MULTILINE))
    found = re.findall(r"^Unsupported content type (\S+)$", ran.stderr, re.MULTILINE)
    if ran.returncode or set(found) != UNSUPPORTED or warned > len(found):
        sys.exit(f"unexpected warnings from the generator:\n{ran.stdout}{ran.stderr}")


def main() -> None:
    """Generate the client, check it with mypy, and run a session."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    key, entry = new_key("client", "rank+feedback+admin")
    with (
        serving(environ={"SOLAR_KEYS": entry}) as running,
        tempfile.TemporaryDirectory(prefix="solar-client-") as name,
    ):
        folder = Path(name)
        generate(running.url, folder)
        shutil.copy(SESSION, folder / "session.py")
        checked = ["mypy", "--strict", "--config-file=", "solar_api", "session.py"]
        subprocess.run(checked, cwd=folder, check=True)
        subprocess.run([sys.executable, "session.py", running.url, key], cwd=folder, check=True)
        print("the generated client ranked, sent feedback, and ranked with the updated model")


if __name__ == "__main__":
    main()
