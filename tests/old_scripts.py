"""The scripts of version 0.2, which processes of that version run during an upgrade."""

from pathlib import Path
from typing import Any

from tests.servers import client

SCRIPTS = Path(__file__).parent / "golden" / "scripts-0.2"


def old_script(url: str, name: str, keys: list[str], *values: Any) -> Any:
    """Run a script of version 0.2."""
    with client(url) as connection:
        return connection.eval((SCRIPTS / f"{name}.lua").read_bytes(), len(keys), *keys, *values)
