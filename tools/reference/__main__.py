"""Write the reference pages; `tests/test_reference.py` fails when one is out of date."""

from pathlib import Path

from tools.reference import api, cli, metrics, settings

DIRECTORY = Path(__file__).parent.parent.parent / "docs" / "reference"
PAGES = {"api.md": api.page, "cli.md": cli.page, "metrics.md": metrics.page,
         "settings.md": settings.page}  # fmt: skip


def main() -> None:
    """Write every page."""
    DIRECTORY.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (DIRECTORY / name).write_text(page())


if __name__ == "__main__":
    main()
