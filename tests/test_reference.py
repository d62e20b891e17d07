"""The reference pages are what the code says now."""

import sys

import pytest

from tools.reference.__main__ import DIRECTORY, PAGES


@pytest.mark.parametrize("name", sorted(PAGES))
@pytest.mark.skipif(
    sys.platform != "linux", reason="expected Linux: process metrics are there only"
)
def test_a_reference_page_is_up_to_date(name: str) -> None:
    """`make docs` writes it."""
    assert (DIRECTORY / name).read_text() == PAGES[name]()


def test_every_reference_page_is_generated() -> None:
    assert {path.name for path in DIRECTORY.iterdir()} == set(PAGES)
