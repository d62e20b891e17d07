"""`solar evaluate --transfer`: starts of a learner after users changed their intent."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.evaluation import transfer
from app.evaluation.synthetic import SyntheticData, unit
from app.evaluation.transfer import TRANSFER_STARTS, Transfer, TransferRow
from tests import oracles
from tests.commands import solar

SMALL = Transfer(lists=300, seeds=3, data=SyntheticData(features=8, queries=100, documents=10))


@cache
def found(cosine: float) -> dict[str, TransferRow]:
    experiment = Transfer(SMALL.lists, SMALL.seeds, cosine, data=SMALL.data)
    return {row.start: row for row in transfer.run_transfer(experiment, progress=False)}


@given(st.integers(2, 200), st.floats(-1.0, 1.0), st.integers(0, 2**32))
def test_the_second_utility_has_exactly_the_requested_cosine_and_norm_1(
    features: int, cosine: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    u = unit(rng.standard_normal(features))
    v = transfer.at_cosine(u, cosine, rng)
    assert abs(u @ v - cosine) < 1e-12
    assert abs(v @ v - 1.0) < 1e-12


def test_judgements_follow_the_first_utility_and_the_stream_follows_the_second() -> None:
    rng = np.random.default_rng([SMALL.seed, 0])
    first = unit(rng.standard_normal(SMALL.data.features))
    second = transfer.at_cosine(first, 0.5, rng)
    world = transfer.draw_world(SMALL, 0)
    for queries, followed, other in (
        (world.train, first, second),
        (world.validation, first, second),
        (world.test, second, first),
    ):
        labels = np.concatenate([query.labels for query in queries])
        documents = np.concatenate([query.documents for query in queries])
        by_followed, by_other = (
            np.corrcoef(labels, documents @ u)[0, 1] for u in (followed, other)
        )
        assert by_followed > 0.7
        assert 0.3 < by_other < 0.6


def test_after_a_change_a_cold_start_beats_a_warm_one_and_both_beat_the_frozen_model() -> None:
    cold, warm, frozen, weights = (found(0.5)[start].over(slice(None)) for start in TRANSFER_STARTS)
    assert frozen.mean + 0.05 < warm.mean < weights.mean < cold.mean - 0.01
    assert found(0.5)["solar-ii-warm"].against_cold(slice(None)).mean < -0.01


def test_without_a_change_the_warm_start_is_ahead_at_first() -> None:
    lead = found(1.0)["solar-ii-warm"].against_cold(slice(10))
    assert lead.mean > 0.1
    assert lead.mean > 3.0 * lead.error


def test_all_starts_play_the_same_lists_and_the_warm_ones_begin_with_the_weights_of_ranksvm() -> (
    None
):
    rows = found(0.5)
    begin = [rows[start].ndcg[:, 0].tolist() for start in TRANSFER_STARTS[1:]]
    assert begin[0] == begin[1] == begin[2]
    for at in range(SMALL.seeds):  # zero weights leave the submitted order
        lists = transfer.draw_world(SMALL, at).test
        first = np.random.default_rng([SMALL.seed, at, 1]).permutation(len(lists))[0]
        submitted = oracles.ndcg(lists[first].labels.tolist(), 10)
        assert rows["solar-ii-cold"].ndcg[at, 0] == pytest.approx(submitted, abs=1e-12)


def test_a_row_has_means_over_seeds_and_standard_errors_of_paired_differences() -> None:
    row = TransferRow("a", np.array([[0.0, 0.5], [0.5, 1.0]]), np.array([[0.0, 0.25], [0.5, 0.25]]))
    assert row.over(slice(None)) == (0.5, 0.25)  # 0.25 and 0.75: deviation √0.125, error 0.25
    assert row.over(slice(1)) == (0.25, 0.25)
    assert row.against_cold(slice(1)) == (0.0, 0.0)
    assert row.against_cold(slice(None)) == (0.25, 0.125)
    assert TransferRow("a", row.ndcg[:1], row.cold[:1]).over(slice(None)) == (0.25, 0.0)


def test_the_command_prints_a_table_and_draws_two_panels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "transfer.svg"
    words = ("evaluate", "--transfer", "--lists", "30", "--seeds", "2")
    assert solar(*words, "--plot", str(plot)) == 0
    head, names, *lines = capsys.readouterr().out.splitlines()
    assert head == "30 lists, cosine 0.5, seeds: 2"
    assert names.split() == ["online", "NDCG@10", "FIRST", "10", "ALL"]
    assert [line.split()[0] for line in lines if line] == [
        *TRANSFER_STARTS,
        "minus",
        *TRANSFER_STARTS[1:],
    ]
    drawn = plot.read_text()
    assert drawn.count("fill-opacity: 0.15") == 2 * len(TRANSFER_STARTS)
    assert "lists" in drawn

    assert solar(*words, "--json", "--cosine", "1") == 0
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["start"] for one in objects] == list(TRANSFER_STARTS)
    assert all((one["lists"], one["seeds"]) == (30, 2) for one in objects)
    lead = objects[1]["online-ndcg@10-first-10"]["against_cold"]
    assert lead["mean"] > 0.1
    assert lead["error"] > 0.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--transfer", "--cosine", "1.5"], "--cosine: expected a number from -1 to 1, got 1.5"),
        (["--transfer", "--cosine", "nan"], "--cosine: expected a number from -1 to 1, got nan"),
        (["--transfer", "--gamma", "0"], "gamma: expected a value from 1e-12"),
        (["--transfer", "--compare"], "--transfer: expected without --algorithm, --compare"),
        (["--transfer", "--permutations", "3"], "--transfer: expected without --algorithm"),
        (["--transfer", "--plot", "a.png"], "expected a file name that ends in .svg, got a.png"),
        (["--world", "--lists", "9"], "--lists: expected with --transfer, got without it"),
        (["--world", "--plot", "a.svg"], "--plot: expected with --transfer, got without it"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert solar("evaluate", *words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1
