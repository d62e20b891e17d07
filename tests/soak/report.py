"""The report of a run: goals, what was done, latencies and processes; and the picture."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.soak import drift, restarts
from tests.soak.announcements import Announcement
from tests.soak.goals import Goal, summary, table
from tests.soak.picture import Panel, Points, svg
from tests.soak.plan import Plan
from tests.soak.samples import Sample

TIMED = ("/rank", "/feedback")
MEGA = 1e6
#: A rewritten append-only file and its predecessor, and the growth that starts a rewrite.
MOST_DISK, LEAST_DISK = 4.0, 128e6

#: Percent of the lists that a judged run may answer with `logged: false`, outside of faults.
MOST_FORGOTTEN = 0.1
#: Bytes of data that a list and an event may add, and those of models, versions and jobs.
LIST_BYTES, EVENT_BYTES, LEAST_DATA = 800, 1_500, 64e6


@dataclass
class Outcome:
    """What a run has seen."""

    plan: Plan
    run: int
    samples: list[Sample] = field(default_factory=list)
    announced: list[Announcement] = field(default_factory=list)
    latencies: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    statuses: Counter[tuple[str, int, bool]] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    warnings: Counter[str] = field(default_factory=Counter)
    directory: list[tuple[float, int]] = field(default_factory=list)
    store_bytes: list[tuple[float, int]] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "none")
    problems: list[str] = field(default_factory=list)
    more: list[str] = field(default_factory=list)  # problems that are counted only, by kind
    broken: int = 0  # the count of all problems
    keys: Counter[str] = field(default_factory=Counter)  # in the store at the end, by kind
    before: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def growths(self) -> list[drift.Growth]:
        """Return the growth of each process that lived long enough."""
        return drift.growths(self.samples, self.plan.warm, self.plan.span)

    def warm_values(self) -> dict[str, dict[str, float]]:
        """Return what each role had before the first fault, to compare the next run with."""
        window = self.plan.window
        return drift.values_at(self.samples, window - self.plan.span, window)


def goals(outcome: Outcome) -> list[Goal]:
    """Judge a run: nothing broken, no growth, no drift."""
    plan, grown, judged = outcome.plan, outcome.growths(), outcome.plan.judged
    timed = {path: outcome.latencies.get(path, ()) for path in TIMED}
    broken = max(outcome.broken, len(outcome.problems))
    found = [
        Goal("broken invariants", "0", f"{broken:,}", not outcome.problems),
        *restarts.restart_goals(outcome.samples, outcome.announced, plan.seconds),
        *restarts.lifetime_goals(grown, plan.workers, judged=judged),
        *drift.growth_goals(grown, judged=judged),
        *drift.store_goals(grown, outcome.store_bytes, plan.span, judged=judged),
        *drift.drift_goals(timed, plan, judged=judged and not plan.shared),
        *drift.run_goals(outcome.before, outcome.warm_values(), judged=judged),
        Goal("calls without an answer or 503, outside of faults", "0",
             str(sum(outcome.refused.values())), not outcome.refused),
    ]  # fmt: skip
    ranked = outcome.counts.get("traffic", Counter())
    if ranked["rankings"]:
        share = 100 * ranked["lists not remembered"] / ranked["rankings"]
        name = "lists not remembered, outside of faults"
        found.append(_at_most(name, MOST_FORGOTTEN, "%", share, judged=judged))
    if outcome.store_bytes:
        grew = outcome.store_bytes[-1][1] - outcome.store_bytes[0][1]
        found.append(_at_most("growth of the data in the store", round(_most_data(ranked) / MEGA),
                              "MB", grew / MEGA))  # fmt: skip
    if outcome.directory and outcome.store_bytes:
        most = max(MOST_DISK * max(size for _, size in outcome.store_bytes), LEAST_DISK) / MEGA
        peak = max(size for _, size in outcome.directory) / MEGA
        found.append(_at_most("data directory", round(most), "MB", peak))
    return found


def _most_data(traffic: Counter[str]) -> float:
    """Return the bytes by which the data may grow, from what was sent."""
    lists = traffic["rankings"] + traffic["rankings, in faults"]
    return LEAST_DATA + LIST_BYTES * lists + EVENT_BYTES * traffic["events acknowledged"]


def _at_most(name: str, limit: float, unit: str, reached: float, *, judged: bool = True) -> Goal:
    met = reached <= limit if judged else None
    return Goal(name, f"<= {limit:g} {unit}", f"{reached:.2f} {unit}", met)


def missed(outcome: Outcome) -> list[str]:
    """Return the names of the goals that are missed: there is none in a run that passes."""
    return [one.name for one in goals(outcome) if one.met is False]


def text(outcome: Outcome) -> str:
    """Format the report as Markdown."""
    plan = outcome.plan
    parts = [
        f"# Soak run {outcome.run}: {plan.seconds / 60:.3g} min, seed {plan.seed}",
        summary(goals(outcome)),
        "## Broken invariants",
        "\n".join(f"- {one}" for one in [*outcome.problems, *outcome.more]) or "None.",
        "## Latencies outside of faults, ms",
        _latencies(outcome),
        "## Processes: from the age at which they must not grow to their end",
        _processes(outcome),
    ]
    for name, counted in (outcome.counts | {"answers": _answers(outcome)}).items():
        parts += [f"## {name.capitalize()}", _counts("what", sorted(counted.items()))]
    took, fault = outcome.slowest
    parts += [
        f"The slowest recovery took {took:.1f} s, after: {fault}.",
        "## Without an answer or 503, outside of faults",
        _counts("call", outcome.refused.most_common(10)),
        "## Keys in the store at the end",
        _counts("kind", sorted(outcome.keys.items())),
        "## Warnings in the log",
        _counts("message", outcome.warnings.most_common(20)),
    ]
    return "\n\n".join(parts) + "\n"


def _answers(outcome: Outcome) -> Counter[str]:
    return Counter({
        f"{path}: {status or 'none'}{'' if quiet else ', in faults'}": count
        for (path, status, quiet), count in outcome.statuses.items()
    })  # fmt: skip


def _counts(what: str, counted: Sequence[tuple[str, int]]) -> str:
    rows = [[name.replace("|", " "), f"{count:,}"] for name, count in counted]
    return table([what, "count"], rows) if rows else "None."


def _latencies(outcome: Outcome) -> str:
    shares, rows = (0.5, 0.99, 0.999, 1.0), []
    each = {path: [took for _, took in values] for path, values in outcome.latencies.items()}
    each["how late the client sent"] = outcome.late
    for path, took in sorted(each.items()):
        values = [f"{1000 * drift.percentile(took, share):.1f}" for share in shares]
        rows.append([path, f"{len(took):,}", *values])
    return table(["call", "count", "p50", "p99", "p99.9", "largest"], rows)


def _processes(outcome: Outcome) -> str:
    rows = [
        [one.role, str(one.pid), f"{(one.end - one.begin) / 60:.1f}",
         f"{one.rss[0] / MEGA:.1f}", f"{one.rss[1] / MEGA:.1f}", f"{one.growth:+.1%}",
         f"{one.descriptors[0]:.0f}", f"{one.descriptors[1]:.0f}",
         f"{one.threads[0]:.0f}", f"{one.threads[1]:.0f}"]
        for one in outcome.growths()
    ]  # fmt: skip
    head = ["process", "pid", "minutes", "MB", "to", "growth", "descriptors", "to", "threads", "to"]
    return table(head, rows)


def picture(outcome: Outcome) -> str:
    """Draw the report."""
    plan = outcome.plan
    size = plan.seconds / 60
    panels = [
        Panel("Latency outside of faults, ms", dict(_percentiles(outcome, size))),
        Panel("Memory, MB", _by_role(outcome.samples, "rss", MEGA)),
        Panel("Descriptors without HTTP clients", _by_role(outcome.samples, "descriptors")),
        Panel("Threads", _by_role(outcome.samples, "threads")),
        Panel("Data, MB", {"data directory": [(at, one / MEGA) for at, one in outcome.directory],
                           "in the store": [(at, one / MEGA) for at, one in outcome.store_bytes]}),
    ]  # fmt: skip
    bands = [(one.at, one.at + one.seconds) for one in outcome.announced if one.disturbs]
    title = f"Soak run {outcome.run}: {plan.seconds / 60:.3g} minutes; grey: faults and checks"
    return svg(title, panels, plan.seconds, bands)


def _percentiles(outcome: Outcome, size: float) -> Iterator[tuple[str, Points]]:
    for path in TIMED:
        bins: dict[int, list[float]] = {}
        for at, took in outcome.latencies.get(path, ()):
            bins.setdefault(int(at / size), []).append(1000 * took)
        for share in (0.5, 0.99):
            points = [((at + 0.5) * size, drift.percentile(bins[at], share)) for at in sorted(bins)]
            yield f"{path} p{100 * share:g}", points


def _by_role(samples: Sequence[Sample], name: str, unit: float = 1.0) -> dict[str, Points]:
    found: dict[str, Any] = {}
    for one in samples:
        if one.role.startswith(drift.LASTING):
            found.setdefault(one.role, []).append((one.at, getattr(one, name) / unit))
    return dict(sorted(found.items()))
