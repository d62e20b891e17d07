"""Every operation that `/openapi.json` documents, and what a caller needs for it."""

from dataclasses import dataclass
from typing import Any

from app.config import Settings
from app.main import create_app

DOCUMENT: dict[str, Any] = create_app(Settings()).openapi()


@dataclass(frozen=True)
class Operation:
    """A method of a path; without a scope nobody needs a key."""

    method: str
    path: str
    scope: str | None
    said: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def at(self, name: str = "nobody") -> str:
        """A path of it, with a model that may not exist."""
        return self.path.format(name=name, id=f"{name}.01970000-0000-7000-8000-000000000000")


def _scope(said: dict[str, Any]) -> str | None:
    security = said.get("security")
    if security is None:
        return None
    ((scope,),) = (scopes for one in security for scopes in one.values())
    return str(scope)


OPERATIONS = [
    Operation(method.upper(), path, _scope(said), said)
    for path, methods in DOCUMENT["paths"].items()
    for method, said in methods.items()
]
GUARDED = [one for one in OPERATIONS if one.scope is not None]
OPEN = [one for one in OPERATIONS if one.scope is None]
