"""The reference pages in `docs/reference`, written from the code: `python -m tools.reference`."""
