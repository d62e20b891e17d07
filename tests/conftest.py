"""How the tests run: properties without a deadline (a first call compiles), the same ones in CI."""

import os

from hypothesis import settings

settings.register_profile("solar", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("solar")
