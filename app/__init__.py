"""SOLAR: a streaming online-ranking service. README.md has the map of the packages."""

from app.runtime import jit_cache

jit_cache.use()
