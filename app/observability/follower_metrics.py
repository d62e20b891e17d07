"""The metrics of followers; a service without followers has none of them.

No list was a follower's own, so it is in no metric of models.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily

from app.domain.model import SUMS
from app.observability.duel_metrics import gauge, with_values
from app.serving.served_model import ServedModel
from app.storage.keys import follower_name, leader_of

#: Followers with metrics of their own: first those that have stalled, then those that lag most.
MOST_FOLLOWERS = 200
KINDS = ("stepped", "passive", "refused")
_LABELS = ("model", "leader")


class Follower(NamedTuple):
    """A follower as this process sees it; `sums` is None if its state is not known here."""

    name: str
    leader: str
    stalled: bool
    lag: int = 0
    sums: Mapping[str, float] | None = None


def chosen_followers(
    leaders: Mapping[str, ServedModel],
    tails: Mapping[str, int],
    followers: Mapping[str, ServedModel],
    stalled: Collection[str],
) -> list[Follower]:
    """Choose the followers that have metrics; `followers` and `stalled` are by address.

    `tails` are the last records of the leaders' logs, which may have been read before a commit.
    """
    ends = {name: max(one.version, tails.get(name, 0)) for name, one in leaders.items()}
    found = [
        _follower(address, ends, followers.get(address), address in stalled)
        for address in sorted({*followers, *stalled})
    ]
    found.sort(key=lambda one: (not one.stalled, -one.lag))
    return sorted(found[:MOST_FOLLOWERS], key=lambda one: (one.leader, one.name))


def _follower(
    address: str, ends: Mapping[str, int], served: ServedModel | None, stalled: bool
) -> Follower:
    leader, name = leader_of(address), follower_name(address)
    if served is None or leader not in ends:
        return Follower(name, leader, stalled)
    lag = max(0, ends[leader] - served.version)
    return Follower(name, leader, stalled, lag, dict(zip(SUMS, served.sums.tolist(), strict=True)))


def follower_metrics(followers: Iterable[Follower]) -> Iterator[GaugeMetricFamily]:
    """Each metric of followers; those without a value are left out with their help texts."""
    return with_values(_metrics(list(followers)))


def _metrics(followers: list[Follower]) -> Iterator[GaugeMetricFamily]:
    stalled = gauge("solar_follower_stalled", *_LABELS)
    for one in followers:
        stalled.add_metric([one.name, one.leader], one.stalled)
    yield stalled
    known = [(one, one.sums) for one in followers if one.sums is not None]
    for name, value in _VALUES.items():
        family = gauge(name, *_LABELS)
        for one, sums in known:
            family.add_metric([one.name, one.leader], value(one, sums))
        yield family
    updates = gauge("solar_follower_updates", *_LABELS, "kind")
    for one, sums in known:
        for kind in KINDS:
            updates.add_metric([one.name, one.leader, kind], sums[kind])
    yield updates


_VALUES: dict[str, Callable[[Follower, Mapping[str, float]], float]] = {
    "solar_follower_lag_records": lambda one, _: one.lag,
    "solar_follower_squared_hinge_loss": lambda _, sums: sums["squared_loss"],
    "solar_follower_compared_lists": lambda _, sums: sums["compared"],
    "solar_follower_agreement_summed": lambda _, sums: sums["agreeing"],
    "solar_follower_passed_by_records": lambda _, sums: sums["passed_by"],
}
