"""SOLAR: a streaming online-ranking service. README.md maps the packages."""

from app.runtime import jit_cache

__version__ = "0.2.0"

jit_cache.use()
