"""`make paper`: the page of the papers' tables and figures, from tiny data in LETOR's layout."""

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import sklearn.svm  # noqa: F401  # sets environment variables on import: before any test

from app.evaluation.synthetic import SyntheticData
from app.ranking.batch.judgements import Judgements
from tests import oracles
from tests.test_evaluation import as_letor
from tools.paper import compared, quality, reasons
from tools.paper.__main__ import write_page
from tools.paper.compared import UNKNOWN, Compared, compared_table
from tools.paper.generated import adjacent_pairs
from tools.paper.inputs import LETOR, Effort, Inputs
from tools.paper.items import ITEMS
from tools.paper.ranksvm import statistics_of

ROOT = Path(__file__).parents[1]
TINY = Effort(permutations=1, lasting=0.0, lists=4, length=12, trees=(2, 2, 3))

#: The tables and figures with results, and none of notation or illustrations.
OF_THE_PAPERS = {
    "SOLAR": {"Table 1", "Table 2", "Table 3", "Figure 2", "Figure 3"},
    "RankSVM": {
        "Table 2", "Table 3", "Table 4", "Table 5", "Table 6", "Table 7", "Table 8", "Table 9",
        "Table 10", "Figure 4", "Figure 5", "Figure 6", "Figure 7",
    },
    "Sparse ranking": {"Figure 2", "Figure 3", "Figure 4"},
}  # fmt: skip


def tiny_data(folder: Path) -> Path:
    """MQ2008 in five partitions of four queries, and a sample of eight queries."""
    size = SyntheticData(features=4, queries=4, documents=6)
    for name in ("MQ2008/S1", "MQ2008/S2", "MQ2008/S3", "MQ2008/S4", "MQ2008/S5",
                 "MSLR-sample/train", "MSLR-sample/test"):  # fmt: skip
        path = folder / f"{name}.txt"
        path.parent.mkdir(exist_ok=True)
        _, queries = size.draw(np.random.default_rng(list(name.encode())))
        path.write_text(as_letor(queries).replace(" qid:", f" qid:{path.stem}"))
    return folder


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    write_page(tiny_data(tmp_path_factory.mktemp("data")), folder, TINY)
    return folder


def test_published_figures_stand_only_beside_the_data_of_the_paper(docs: Path) -> None:
    assert UNKNOWN not in (docs / "paper.md").read_text()


def indexed(page: str) -> dict[str, set[str]]:
    """The items of a page's first table, by paper."""
    found: dict[str, set[str]] = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0] in OF_THE_PAPERS:
            found.setdefault(cells[0], set()).update(cells[1].split(", "))
    return found


def test_the_page_names_every_table_and_figure_of_the_papers(docs: Path) -> None:
    assert indexed((docs / "paper.md").read_text()) == OF_THE_PAPERS
    assert indexed((ROOT / "docs" / "paper.md").read_text()) == OF_THE_PAPERS


def test_every_item_with_data_has_a_section_and_its_figures(docs: Path) -> None:
    page = (docs / "paper.md").read_text()
    headings = [line for line in page.splitlines() if line.startswith("## ")]
    assert len(headings) == len(ITEMS) - 1  # sparse data cannot be had
    shown = set(re.findall(r"\]\(figures/([^)]*)\)", page))
    assert shown == {path.name for path in (docs / "figures").iterdir()}
    assert len(shown) == 5


def test_the_committed_figures_are_small_and_shown() -> None:
    page = (ROOT / "docs" / "paper.md").read_text()
    for name in re.findall(r"\]\(figures/([^)]*)\)", page):
        assert 1_000 < (ROOT / "docs" / "figures" / name).stat().st_size <= 60_000


def test_without_data_every_item_but_generated_lists_is_listed_as_not_run(tmp_path: Path) -> None:
    inputs = Inputs(tmp_path, tmp_path, TINY)
    assert inputs.missing == [*LETOR, "MSLR-sample"]
    statuses = {item.names: item.make(inputs).status for item in ITEMS}
    assert statuses.pop(("Table 10",)) == "generated lists"
    assert statuses.pop(("Figure 4", "Figure 6")) == "generated lists for MQ2008-list"
    assert all(status.startswith("not run: no data") for status in statuses.values())


def test_a_large_difference_without_a_reason_is_shown_and_warned_of(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        Compared("near", (0.5, 0.4), (0.51, 0.4)),
        Compared("far", (0.5, 0.4), (0.5, 0.4101)),
        Compared("measured alone", (0.5, 0.4)),
    ]
    show = partial(compared_table, "T", "D", ("a", "b"), rows)
    shown = show()
    assert shown.count(UNKNOWN) == 1
    assert f"- **far**: {UNKNOWN}." in shown
    assert "−0.0101" in shown
    assert capsys.readouterr().err == f"warning: T, D, far: -0.0101, {UNKNOWN}\n"
    monkeypatch.setattr(compared, "REASONS", {("T", "D", "far"): "another discount"})
    assert "- **far**: another discount." in show()
    assert capsys.readouterr().err == ""


def test_every_reason_is_on_the_page_and_no_difference_lacks_one() -> None:
    page = " ".join((ROOT / "docs" / "paper.md").read_text().split())
    assert UNKNOWN not in page
    for (_, _, algorithm), reason in reasons.REASONS.items():
        assert f"- **{algorithm}**: {reason}." in page


def test_mean_ndcg_is_the_mean_over_all_depths_with_letors_discount() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 2, 7):
        labels = rng.integers(0, 3, size).astype(float)
        expected = np.mean([oracles.ndcg(labels.tolist(), m, "letor") for m in range(1, size + 1)])
        assert quality.mean_ndcg(labels) == pytest.approx(expected, abs=1e-12)
    assert quality.mean_ndcg(np.zeros(3)) == 0.0


def test_labels_beyond_the_gains_of_ndcg_leave_the_pairwise_accuracy() -> None:
    labels = np.array([0.0, 1500.0, 3.0])
    judged = Judgements(np.zeros((3, 1)), labels, np.array([0, 3]))
    assert quality.tested(judged, np.array([0.0, 2.0, 1.0])) == (0.0, 1.0)
    assert quality.tested(judged, np.array([1.0, 2.0, 0.0])) == (0.0, 2.0 / 3.0)


def test_statistics_and_adjacent_pairs_agree_with_counting_by_hand() -> None:
    judged = Judgements(
        np.arange(5.0)[:, None], np.array([2.0, 0.0, 1.0, 1.0, 0.0]), np.array([0, 3, 5])
    )
    assert statistics_of(judged) == (5, 1, 3, 2, 4, 1.0)
    pairs = adjacent_pairs(judged)
    assert pairs.X[:, 0].tolist() == [1.0, 2.0, 2.0, 0.0, 4.0, 3.0]
    assert pairs.labels.tolist() == [0.0, 1.0] * 3
    assert pairs.starts.tolist() == [0, 2, 4, 6]
