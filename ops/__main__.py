"""`python -m ops`: write dashboards and rules to where Grafana and Prometheus read them."""

from pathlib import Path

from ops import grafana, pipeline, prometheus, quality, service

ROOT = Path(__file__).parent.parent
BOARDS = (quality.BOARD, service.BOARD, pipeline.BOARD)


def files() -> dict[Path, str]:
    """Every file that is written, by its path."""
    folder = ROOT / "docker" / "grafana" / "dashboards"
    written = {folder / f"{board.name}.json": grafana.dump(board) for board in BOARDS}
    return {**written, ROOT / "docker" / "prometheus" / "rules.yml": prometheus.dump()}


if __name__ == "__main__":
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
