"""SOLAR: a streaming online-ranking service. docs/architecture.md lists the packages."""

from app.runtime import jit_cache

__version__ = "0.2.0"

jit_cache.use()
