"""The report finds what is planted: lost and doubled events, leaks, drift, errors in the log."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.soak import report
from tests.soak.announcements import Announcement, Announcements
from tests.soak.calls import Calls
from tests.soak.goals import Goal
from tests.soak.ledger import Book, Problems
from tests.soak.logs import check_log
from tests.soak.plan import Plan
from tests.soak.report import Outcome, goals, missed
from tests.soak.rollbacks import Rollbacks
from tests.soak.samples import Sample
from tests.soak.service import complete_roles

HOUR = Plan(3600.0)
MEGA = 1_000_000


def outcome(
    rss: Callable[[float], float] = lambda _: 100.0,
    descriptors: Callable[[float], float] = lambda _: 30.0,
    took: Callable[[float, int], float] = lambda _, at: 0.002 + 0.000_01 * (at % 100),
    role: str = "worker 0",
) -> Outcome:
    """An hour of one process among steady ones; memory in MB, all by seconds."""
    moments = [5.0 * at for at in range(721)]
    samples = [Sample(at, role, 7, int(rss(at) * MEGA), int(descriptors(at)), 4) for at in moments]
    others = sorted(complete_roles(HOUR.workers) - {role})
    samples += [Sample(at, one, 9, 50 * MEGA, 20, 4) for one in others for at in moments]
    calls = [(0.5 * at, took(0.5 * at, at)) for at in range(7200)]
    return Outcome(HOUR, 1, samples, latencies={"/rank": calls, "/feedback": calls})


def steady_after_ten_minutes(at: float) -> float:
    return 60.0 + min(at, 600.0) / 15.0


# ---- growth and drift ----


def test_an_hour_without_growth_and_drift_meets_every_goal() -> None:
    assert missed(outcome()) == []
    assert missed(outcome(rss=steady_after_ten_minutes)) == []


def test_a_leak_of_memory_after_ten_minutes_is_found() -> None:
    leak = outcome(rss=lambda at: 100.0 + 13.0 * at / 3600.0)
    assert missed(leak) == ["memory of worker 0"]
    assert missed(outcome(rss=lambda at: 100.0 + 9.0 * at / 3600.0)) == []


def test_a_leak_of_descriptors_is_found() -> None:
    assert missed(outcome(descriptors=lambda at: 30.0 + 8.0 * at / 3600.0)) == [
        "descriptors of worker 0"
    ]
    assert missed(outcome(descriptors=lambda at: 30.0 - 8.0 * at / 3600.0)) == [
        "descriptors of worker 0"
    ]


def test_a_restarted_process_begins_a_new_series() -> None:
    found = outcome()
    found.announced = [Announcement(1801.0, "fault", "kill worker 0", 2.0, disturbs=True)]
    found.samples = [
        one._replace(pid=8, rss=150 * MEGA) if one.pid == 7 and one.at > 1800.0 else one
        for one in found.samples
    ]
    assert missed(found) == []
    assert [one.pid for one in found.growths() if one.role == "worker 0"] == [7, 8]


def test_a_process_that_leaks_and_dies_young_is_found() -> None:
    found = outcome(rss=lambda at: 100.0 + 100.0 * (at % 480.0) / 60.0)
    found.samples = [
        one._replace(pid=100 + int(one.at / 480.0)) if one.pid == 7 else one
        for one in found.samples
    ]
    assert missed(found) == [
        "restarts outside of faults", "processes of worker 0 that lived long enough",
    ]  # fmt: skip
    assert "worker 0 at 480 s, worker 0 at 960 s" in report.text(found)
    found.announced = [Announcement(0.0, "fault", "kill worker 0", 3600.0, disturbs=True)]
    assert missed(found) == ["processes of worker 0 that lived long enough"]


def test_a_process_that_ended_and_has_no_successor_is_found() -> None:
    found = outcome()
    found.samples = [one for one in found.samples if one.pid != 7 or one.at < 3000.0]
    assert missed(found) == ["restarts outside of faults"]
    assert "1: worker 0 after 2995 s" in report.text(found)


def test_a_process_that_ended_young_is_not_judged() -> None:
    found = outcome(rss=lambda at: 100.0 + at)
    found.samples = [one for one in found.samples if one.at < 700.0 and one.pid == 7]
    assert found.growths() == []


def test_memory_of_the_store_may_grow_with_its_data_only() -> None:
    def found(data: float) -> Outcome:
        made = outcome(rss=lambda at: 100.0 + at / 36.0, role="store")
        made.counts = {"traffic": Counter({"rankings": 100_000})}
        made.store_bytes = [(at, int(MEGA * (80.0 + data * at / 3600.0))) for at in range(3600)]
        return made

    assert missed(found(100.0)) == []
    assert missed(found(70.0)) == ["memory of store beyond its data"]


def test_data_that_grow_by_more_than_what_was_sent_are_found() -> None:
    def found(data: float, lists: int) -> Outcome:
        made = outcome()
        made.counts = {"traffic": Counter({"rankings": lists, "events acknowledged": 1000})}
        made.store_bytes = [(at, int(MEGA * (100.0 + data * at / 3600.0))) for at in range(3600)]
        made.directory = [(float(at), int(3.9 * size)) for at, size in made.store_bytes]
        return made

    assert missed(found(9900.0, 180_000)) == ["growth of the data in the store"]
    assert missed(found(200.0, 180_000)) == []
    assert missed(found(200.0, 100)) == ["growth of the data in the store"]


def test_a_drift_of_p99_is_found() -> None:
    def slow(at: float, number: int) -> float:
        late = at >= 3000.0 and number % 50 == 0
        return 0.005 if late else 0.002 + 0.000_01 * (number % 100)

    assert missed(outcome(took=slow)) == [
        "p99 of /rank, last against first or second 10 min",
        "p99 of /feedback, last against first or second 10 min",
    ]
    assert missed(outcome(took=lambda at, _: 0.002 * (1.0 + 0.15 * at / 3600.0))) == []


@pytest.mark.parametrize("slow_until", [60.0, 600.0])
def test_a_slow_start_does_not_hide_a_drift(slow_until: float) -> None:
    def slow(at: float, number: int) -> float:
        base = 0.002 + 0.000_01 * (number % 100)
        return base * (4.0 if at < slow_until else 2.0 if at >= 3000.0 else 1.0)

    assert len(missed(outcome(took=slow))) == 2


def test_on_a_shared_machine_a_drift_is_shown_and_not_judged() -> None:
    found = outcome(took=lambda at, _: 0.002 * (1.0 + at / 3600.0))
    assert len(missed(found)) == 2
    found.plan = replace(HOUR, shared=True)
    assert missed(found) == []


def test_a_run_is_compared_with_the_run_before_on_its_data() -> None:
    found = outcome()
    found.before = {"worker 0": {"rss": 90.0 * MEGA, "descriptors": 24.0, "threads": 4.0}}
    assert missed(found) == [
        "descriptors of worker 0, against the run before",
        "memory of worker 0, against the run before",
    ]
    found.before = found.warm_values()
    assert missed(found) == []


def test_lists_that_were_not_remembered_and_refusals_are_counted() -> None:
    found = outcome()
    found.counts = {"traffic": Counter({"rankings": 10_000, "lists not remembered": 11})}
    found.refused = Counter({"/rank: 503": 1})
    assert missed(found) == [
        "calls without an answer or 503, outside of faults",
        "lists not remembered, outside of faults",
    ]


def test_a_short_run_is_not_judged_by_growth_and_drift() -> None:
    found = outcome(rss=lambda at: 100.0 + at)
    found.plan = Plan(180.0)
    verdicts = {one.name: one.met for one in goals(found)}
    assert verdicts.pop("broken invariants")
    assert verdicts.pop("restarts outside of faults")
    assert verdicts.pop("calls without an answer or 503, outside of faults")
    assert set(verdicts.values()) == {None}


def test_a_report_names_what_broke_and_has_a_picture() -> None:
    found = outcome()
    found.problems = ["shop: e7, acknowledged at 12, is missing"]
    assert goals(found)[0] == Goal("broken invariants", "0", "1", met=False)
    assert found.problems[0] in report.text(found)
    assert report.picture(found).count("<polyline") == 21


# ---- events ----


@pytest.fixture
def book() -> Book:
    made = Book("shop", Problems())
    for at in range(1, 6):
        made.acknowledge(f"e{at}", at)
        made.record(at, f"e{at}")
    return made


def test_events_that_are_in_the_log_once_are_no_problem(book: Book) -> None:
    book.acknowledge("e2", 2)
    book.acknowledge("late", 6)  # not read yet
    book.check()
    book.record(6, "late")
    book.record(7)  # of an operator
    book.record(8, "unanswered")
    book.check(whole=True)
    assert book.problems == []
    assert book.feedback == 7


def test_a_lost_event_is_found(book: Book) -> None:
    book.acknowledge("lost", 6)
    book.record(6, "other")
    book.check()
    assert book.problems == ["shop: lost, acknowledged at 6, is missing"]


def test_a_lost_event_of_a_batch_is_found_at_the_end(book: Book) -> None:
    book.acknowledge("lost")
    book.check()
    assert book.problems == []
    book.check(whole=True)
    assert book.problems == ["shop: lost, acknowledged at 0, is missing"]


def test_an_event_at_another_seq_is_found(book: Book) -> None:
    book.acknowledge("e6", 7)
    book.record(6, "e6")
    book.record(7)
    book.check()
    assert book.problems == ["shop: e6, acknowledged at 7, is at 6"]


def test_a_doubled_event_is_found(book: Book) -> None:
    book.record(6, "e3")
    assert book.problems == ["shop: e3 is at 3 and at 6"]


def test_an_event_with_two_seqs_is_found(book: Book) -> None:
    book.acknowledge("e3", 9)
    assert book.problems == ["shop: e3 has the seqs 3 and 9"]


def test_a_lost_event_is_named_once_and_hides_no_other_problem(book: Book) -> None:
    for at in range(6, 36):
        book.acknowledge(f"lost{at}", at)
        book.record(at, f"other{at}")
    for _ in range(60):
        book.check()
    book.problems.add("solar verify: exit code 1")
    assert len(book.problems) == len(set(book.problems)) == 6
    assert book.problems[-1] == "solar verify: exit code 1"
    assert book.problems.more() == ["shop: lostN, acknowledged at N, is missing: 25 more"]
    assert book.problems.total() == 31


def test_a_gap_in_the_log_is_found(book: Book) -> None:
    book.record(7, "e7")
    assert book.problems == ["shop: record 7 follows record 5"]


# ---- the log of the service ----


def line(level: str, message: str) -> str:
    return json.dumps({"time": "2026-11-18T10:00:00.000+00:00", "level": level, "logger": "solar",
                       "message": message}) + "\n"  # fmt: skip


def test_errors_in_the_log_are_problems_and_warnings_are_counted(tmp_path: Path) -> None:
    log, problems = tmp_path / "log", Problems()
    log.write_text(
        line("info", "serving") + line("warning", "slow: 12 ms") + line("warning", "slow: 7.5 ms")
        + line("error", "internal error") + "Traceback (most recent call last):\n"
    )  # fmt: skip
    assert check_log(log, problems) == {"slow: N ms": 2}
    assert len(problems) == 2
    assert "internal error" in problems[0]
    assert "not JSON" in problems[1]


def test_a_rollback_that_the_service_counts_is_a_problem(tmp_path: Path) -> None:
    announcements, problems = Announcements(tmp_path / "actions"), Problems()
    rollbacks = Rollbacks(Calls("", announcements, problems), announcements)
    series = 'solar_store_rollbacks_total{model="%s"} %.1f\n'
    for metrics in ("", series % ("a", 0), "solar_learnt_records_total 5.0\n"):
        rollbacks.note(metrics, "kill store")
    assert problems == []
    rollbacks.note(series % ("a", 1) + series % ("b", 2), "kill store")
    rollbacks.note(series % ("a", 1) + series % ("b", 2), "kill store")
    assert [one.partition(" rollbacks")[0] for one in problems] == [
        "the store lost records of a model: 3"
    ]
