"""The extra `cluster`: what a message says if it is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager

from app.errors import SolarError

PACKAGES = ("dask", "distributed", "fsspec", "psutil", "pyarrow")
NO_EXTRA = "expected the extra `cluster`: pip install 'solar-ranking[cluster]'"


@contextmanager
def extra_needed() -> Iterator[None]:
    """Raise SolarError if an import fails because the extra is missing; other errors stay."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PACKAGES:
            raise
        raise SolarError(NO_EXTRA) from None
