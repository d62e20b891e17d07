"""Every operation in `/openapi.json`, with its scope."""

from dataclasses import dataclass
from typing import Any

from app.config import Settings
from app.main import create_app

DOCUMENT: dict[str, Any] = create_app(Settings()).openapi()


@dataclass(frozen=True)
class Operation:
    """A method of a path; an operation without a scope needs no key."""

    method: str
    path: str
    scope: str | None
    documented: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def at(self, name: str = "missing") -> str:
        """Return the path for a model, which may not exist."""
        job = f"{name}.01970000-0000-7000-8000-000000000000"
        return self.path.format(name=name, id=job, version="missing", a="0", b="current")


def _scope(documented: dict[str, Any]) -> str | None:
    security = documented.get("security")
    if security is None:
        return None
    ((scope,),) = (scopes for one in security for scopes in one.values())
    return str(scope)


OPERATIONS = [
    Operation(method.upper(), path, _scope(documented), documented)
    for path, methods in DOCUMENT["paths"].items()
    for method, documented in methods.items()
]
GUARDED = [one for one in OPERATIONS if one.scope is not None]
OPEN = [one for one in OPERATIONS if one.scope is None]
