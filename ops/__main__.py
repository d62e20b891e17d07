"""`python -m ops`: write the dashboards and rules to the files that Grafana and Prometheus read."""

from pathlib import Path

from ops import grafana, pipeline, prometheus, quality, service

ROOT = Path(__file__).parent.parent
BOARDS = (quality.BOARD, service.BOARD, pipeline.BOARD)


def files() -> dict[Path, str]:
    """Path → content of every generated file."""
    folder = ROOT / "docker" / "grafana" / "dashboards"
    dashboards = {folder / f"{board.name}.json": grafana.dump(board) for board in BOARDS}
    return {**dashboards, ROOT / "docker" / "prometheus" / "rules.yml": prometheus.dump()}


if __name__ == "__main__":
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
