"""Simulated users click with the probabilities of their tables."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.ranking import users as crowd
from app.ranking.users import EXAMINATION, STOPS, TABLES, USER_NAMES
from tests import oracles_traffic as naive

CASES = [(grades, name) for grades in TABLES for name in USER_NAMES]


def click_rates(found: crowd.Users, labels: list[float], times: int = 20_000) -> Any:
    """The share of users who click each position."""
    rng = np.random.default_rng(7)
    count = np.zeros(len(labels))
    for uniforms in rng.random((times, 1 + 2 * len(labels))):
        count[crowd.clicks(found, np.array(labels), uniforms)] += 1
    return count / times


@pytest.mark.parametrize(("grades", "name"), CASES)
def test_the_first_position_has_the_click_rate_of_the_table(grades: int, name: str) -> None:
    for grade in range(grades):
        expected = TABLES[grades][name][0][grade] * (EXAMINATION[0] if name == "pbm" else 1.0)
        seen = click_rates(crowd.users(name, grades, 2), [float(grade)], times=4000)[0]
        assert seen == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("name", USER_NAMES)
def test_the_second_position_is_clicked_by_users_who_have_not_stopped(name: str) -> None:
    click, stop = TABLES[3][name]
    first, second = (0.68, 0.61) if name == "pbm" else (1.0, 1.0)
    stays = 1.0 - first * click[2] * stop[2]
    seen = click_rates(crowd.users(name, 3, 2), [2.0, 1.0])
    assert seen[1] == pytest.approx(stays * second * click[1], abs=0.012)


def test_stops_at_every_position_give_fewer_clicks() -> None:
    labels = [0.0, 1.0, 0.0, 2.0, 0.0, 0.0, 1.0, 0.0]
    after, at_every = (
        click_rates(crowd.users("navigational", 3, 8, stop), labels) for stop in STOPS
    )
    stays = 0.8  # the first document has grade 0
    assert at_every[1] == pytest.approx(stays * 0.5, abs=0.012)
    assert at_every.sum() < 0.6 * after.sum()


def test_examination_of_pbm_users_depends_on_the_position_alone() -> None:
    seen = click_rates(crowd.users("pbm", 3, 12), [1.0] * 12)
    assert seen[:10] == pytest.approx(0.7 * np.array(EXAMINATION), abs=0.012)
    assert seen[10:].tolist() == [0.0, 0.0]


def test_attackers_click_the_last_document_shown() -> None:
    seen = click_rates(crowd.users("perfect", 3, 4, attackers=0.25), [0.0] * 4)
    assert seen[:3].tolist() == [0.0] * 3
    assert seen[3] == pytest.approx(0.25, abs=0.012)


@given(
    st.sampled_from(CASES),
    st.sampled_from(STOPS),
    st.sampled_from([0.0, 0.3]),
    st.lists(st.integers(0, 4), min_size=1, max_size=12),
    st.integers(0, 10**6),
)
def test_clicks_of_users_agree_with_a_naive_reference(
    case: tuple[int, str], stop: str, attackers: float, labels: list[int], seed: int
) -> None:
    grades, name = case
    found = crowd.users(name, grades, 12, stop, attackers)
    shown = [float(min(label, grades - 1)) for label in labels]
    uniforms = np.random.default_rng(seed).random(1 + 2 * len(shown))
    clicked = crowd.clicks(found, np.array(shown), uniforms).tolist()
    assert clicked == naive.clicks(naive.NaiveUsers(*found), shown, uniforms.tolist())


@pytest.mark.parametrize("bad", [5.0, 0.5, -1.0])
def test_labels_without_a_table_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="labels: expected whole numbers from 0 to 2 or to 4"):
        crowd.grades(np.array([0.0, bad]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("unknown", 3, 10), "users: expected one of perfect"),
        (("perfect", 4, 10), "grades: expected 3 or 5"),
        (("perfect", 3, 10, "never"), "stop: expected one of click, every"),
        (("perfect", 3, 10, "click", 1.5), "attackers: expected a share"),
    ],
)
def test_invalid_user_settings_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        crowd.users(*arguments)
