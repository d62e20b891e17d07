"""Duels and followers on the page of metrics: made from committed states, apart from models."""

from dataclasses import replace
from math import exp, lgamma, log

import numpy as np
import pytest

from app.domain.duels import Duel, DuelState, Tournament, with_clicks
from app.domain.facts import (
    Committed,
    Deleted,
    LeaseLost,
    ModelStatus,
    NewerFormatFound,
    Replaced,
    Served,
    TraceHalved,
)
from app.learning.learner import warm_up
from app.observability.duel_help import DUEL_HELP
from app.observability.follower_metrics import MOST_FOLLOWERS, Follower, chosen_followers
from app.observability.metric_help import HELP
from app.observability.metrics import Metrics
from app.observability.model_metrics import StoreHealth
from app.observability.quality_help import QUALITY_HELP
from app.serving.served_model import ServedModel
from app.storage.embedded.server import find
from tests.api.services import serving as serving_service
from tests.servers import client as store_client
from tests.servers import until
from tests.test_metrics import Series, read, series, serving

#: A list of two places, one of each team; the champion's is the first.
TEAMS = np.array([1, -1])
NOTHING = np.zeros(0, np.int64)


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> Metrics:
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    return Metrics()


def page(metrics: Metrics, models: list[ServedModel], *followers: Follower) -> Series:
    return read(metrics.page(models, {}, StoreHealth(True, 0.0), followers=followers))


def fought(duel: DuelState, won: int, lost: int, tied: int = 0) -> DuelState:
    """The duel after lists of each outcome."""
    for clicks, count in (([0], won), ([1], lost), ([], tied)):
        for _ in range(count):
            duel = with_clicks(duel, TEAMS, np.array(clicks, np.int64), NOTHING)
    return duel


def champion(name: str = "shop", **sums: float) -> ServedModel:
    """A model that has won 9 lists, lost 4 and tied 2."""
    duel = fought(DuelState(7, Duel("shop-b", 0.2, 0.05)), 9, 4, 2)
    return replace(serving(name, **sums), duel=duel)


def naive_log_evidence(won: int, lost: int) -> float:
    """log 2ⁿ·B(W+100, L+100)/B(100, 100)."""

    def log_beta(a: float, b: float) -> float:
        return lgamma(a) + lgamma(b) - lgamma(a + b)

    return (won + lost) * log(2) + log_beta(won + 100, lost + 100) - log_beta(100, 100)


def sides(name: str = "shop", leading: str = "", challenger: str = "shop-b") -> dict[str, str]:
    return {"model": name, "champion": leading or name, "challenger": challenger}


def test_lists_of_a_duel_are_shown_by_outcome_and_those_that_count_for_the_verdict_apart(
    metrics: Metrics,
) -> None:
    shop = champion()
    assert shop.duel is not None
    late = with_clicks(shop.duel, TEAMS, np.array([0, 1]), np.array([1]))
    found = page(metrics, [replace(shop, duel=late)])
    for outcome, count in (("won", 8), ("lost", 4), ("tied", 3)):
        assert found[series("solar_duel_lists", **sides(), outcome=outcome)] == count
    for outcome, count in (("won", 9), ("lost", 4)):
        assert found[series("solar_duel_decided_lists", **sides(), outcome=outcome)] == count
    outcomes = [one for name, one in found if name == "solar_duel_decided_lists"]
    assert len(outcomes) == 2


def test_the_evidence_is_shown_as_logarithms_and_reaches_that_of_alpha_with_the_verdict(
    metrics: Metrics,
) -> None:
    duel = DuelState(7, Duel("shop-b", 0.2, 0.05))
    while not duel.verdict:
        duel = fought(duel, 0, 1)
    duel = fought(duel, 30, 0)  # the evidence falls again; the verdict stands
    found = page(metrics, [replace(serving("shop"), duel=duel)])
    now = found[series("solar_duel_log_evidence", **sides())]
    most = found[series("solar_duel_log_evidence_max", **sides())]
    assert now == pytest.approx(naive_log_evidence(duel.won, duel.lost))
    alpha = found[series("solar_duel_alpha", **sides())]
    assert alpha == 0.05
    assert now < -log(alpha) <= most < -log(alpha) + 0.7
    assert exp(-most) == pytest.approx(1.0 / duel.largest)
    assert found[series("solar_duel_verdict", **sides())] == -1


@pytest.mark.parametrize(("won", "lost", "verdict"), [(9, 4, 0), (80, 10, 1), (10, 80, -1)])
def test_a_verdict_is_1_for_the_champion_and_minus_1_for_the_challenger(
    metrics: Metrics, won: int, lost: int, verdict: int
) -> None:
    duel = fought(DuelState(7, Duel("shop-b", 0.2, 0.05)), won, lost)
    found = page(metrics, [replace(serving("shop"), duel=duel)])
    assert found[series("solar_duel_verdict", **sides())] == verdict


def test_a_duel_that_has_ended_keeps_its_numbers_until_the_next_one(metrics: Metrics) -> None:
    shop = champion()
    assert shop.duel is not None
    assert page(metrics, [shop])[series("solar_duel_on", **sides())] == 1
    found = page(metrics, [replace(shop, duel=replace(shop.duel, ended=9, why="ended"))])
    assert found[series("solar_duel_on", **sides())] == 0
    assert found[series("solar_duel_lists", **sides(), outcome="won")] == 9
    begun = DuelState(12, Duel("submitted", 0.2, 0.05))
    found = page(metrics, [replace(shop, duel=begun)])
    assert found[series("solar_duel_on", **sides(challenger="submitted"))] == 1
    assert series("solar_duel_on", **sides()) not in found


def test_in_a_tournament_the_champion_is_the_follower_that_is_ahead(metrics: Metrics) -> None:
    tournament = Tournament(7, 1, ("shop-b", "shop-c"), 50_000, 0.05, promote=False)
    duel = DuelState(30, Duel("shop-c", 0.2, tournament.alpha_each, None, "shop-b", tournament))
    found = page(metrics, [replace(serving("shop"), duel=duel)])
    ahead = sides(leading="shop-b", challenger="shop-c")
    assert found[series("solar_duel_on", **ahead)] == 1
    assert found[series("solar_duel_alpha", **ahead)] == pytest.approx(0.05 / 3)


def test_evidence_of_0_by_a_fault_does_not_take_the_page_down(metrics: Metrics) -> None:
    shop = replace(serving("shop"), duel=DuelState(7, Duel("b", 0.2, 0.05), evidence=0.0))
    assert page(metrics, [shop])[series("solar_duel_log_evidence", **sides(challenger="b"))] < -700


def test_lists_of_duels_have_means_of_their_own(metrics: Metrics) -> None:
    sums = {
        "queries": 10.0, "ndcg_at_10": 8.0, "map": 8.0, "duel_queries": 4.0,
        "duel_ndcg_at_1": 1.0, "duel_ndcg_at_10": 3.0, "duel_ndcg": 3.5, "duel_map": 2.0,
    }  # fmt: skip
    found = page(metrics, [champion("shop", **sums), champion("new")])
    assert found[series("solar_duel_queries", model="shop")] == 4
    for k, total in (("1", 1.0), ("5", 0.0), ("10", 3.0), ("all", 3.5)):
        assert found[series("solar_duel_ndcg", model="shop", k=k)] == total / 4
        assert found[series("solar_duel_ndcg_summed", model="shop", k=k)] == total
    assert found[series("solar_duel_map", model="shop")] == 0.5
    assert found[series("solar_duel_map_summed", model="shop")] == 2.0
    assert found[series("solar_online_ndcg", model="shop", k="10")] == 0.8
    named = {name for name, labels in found if ("model", "new") in labels}
    assert not named & {"solar_duel_queries", "solar_duel_ndcg", "solar_duel_map"}


def test_promotions_start_at_0_while_the_duel_before_them_is_on(metrics: Metrics) -> None:
    """So that `increase()` sees the first one; a model without a duel has no series."""
    shop, promoted = champion(), series("solar_replacements_total", model="shop", kind="promotion")
    metrics.used("shop")
    assert promoted not in page(metrics, [serving("shop")])
    assert page(metrics, [shop])[promoted] == 0
    metrics.learnt(Replaced("shop", "promotion of shop-b"))
    assert page(metrics, [shop])[promoted] == page(metrics, [])[promoted] == 1


# ---- followers ----


def follower(name: str, *, version: float = 7, **sums: float) -> ServedModel:
    return replace(serving(name, version=version, **sums), name=f"shop/{name}")


def test_a_follower_has_metrics_by_name_and_leader(metrics: Metrics) -> None:
    learnt = {"stepped": 5.0, "passive": 2.0, "refused": 1.0, "squared_loss": 6.5}
    one = follower("shop-b", **learnt, compared=4.0, agreeing=3.25, passed_by=2.0)
    leaders = {"shop": serving("shop", version=12)}
    [chosen] = chosen_followers(leaders, {}, {"shop/shop-b": one}, ())
    found = page(metrics, [leaders["shop"]], chosen)
    labels = {"model": "shop-b", "leader": "shop"}
    expected = {
        "lag_records": 5, "squared_hinge_loss": 6.5, "compared_lists": 4, "agreement_summed": 3.25,
        "passed_by_records": 2, "stalled": 0,
    }  # fmt: skip
    for name, value in expected.items():
        assert found[series(f"solar_follower_{name}", **labels)] == value, name
    for kind in ("stepped", "passive", "refused"):
        assert found[series("solar_follower_updates", **labels, kind=kind)] == learnt[kind]


def test_a_follower_is_in_no_metric_of_models(metrics: Metrics) -> None:
    """No list was its own; its sums would make means of 0."""
    one = follower("shop-b", queries=3.0, ndcg=2.0)
    leaders = {"shop": champion()}
    found = page(
        metrics, [leaders["shop"]], *chosen_followers(leaders, {}, {"shop/shop-b": one}, ())
    )
    named = {name for name, labels in found if ("model", "shop-b") in labels}
    assert named
    assert all(name.startswith("solar_follower_") for name in named)
    assert not {name for name, labels in found if ("model", "shop/shop-b") in labels}
    assert not named & {*QUALITY_HELP}


def test_a_lag_is_not_negative_and_unknown_without_the_leader() -> None:
    ahead = {"shop/shop-b": follower("shop-b", version=9)}
    leaders = {"shop": serving("shop", version=7)}
    [one] = chosen_followers(leaders, {}, ahead, ())
    assert (one.lag, one.sums is None) == (0, False)
    [one] = chosen_followers(leaders, {"shop": 20}, ahead, ())
    assert one.lag == 11  # the leader lags, too
    [one] = chosen_followers({}, {}, ahead, ())
    assert (one.lag, one.sums) == (0, None)


def test_a_stalled_follower_is_reported_also_if_its_state_is_not_served(metrics: Metrics) -> None:
    leaders = {"shop": serving("shop", version=12)}
    served = {f"shop/{name}": follower(name) for name in ("shop-b", "shop-c")}
    chosen = chosen_followers(leaders, {}, served, {"shop/shop-b", "shop/shop-d"})
    found = page(metrics, [], *chosen)
    for name, stalled in (("shop-b", 1), ("shop-c", 0), ("shop-d", 1)):
        labels = {"model": name, "leader": "shop"}
        assert found[series("solar_follower_stalled", **labels)] == stalled
        known = series("solar_follower_lag_records", **labels) in found
        assert known is (name != "shop-d")


def test_of_many_followers_those_that_have_stalled_or_lag_most_have_metrics() -> None:
    leaders = {"shop": serving("shop", version=10_000)}
    names = [f"f{at:03d}" for at in range(MOST_FOLLOWERS + 50)]
    served = {f"shop/{name}": follower(name, version=10_000 - at) for at, name in enumerate(names)}
    chosen = chosen_followers(leaders, {}, served, {"shop/f000"})
    assert [one.name for one in chosen] == ["f000", *names[51:]]


def test_facts_of_followers_leave_no_counts(metrics: Metrics) -> None:
    """Also none of a leader whose name fills the name of a row: rows cut names off."""
    leader = "m" * 64
    metrics.used(leader)
    for address in ("shop/shop-b", f"{leader}/b"):
        metrics.served(Served(address, 1, backwards=True))
        metrics.served(NewerFormatFound(address))
        for fact in (
            Committed(address, 5, 0.01), LeaseLost(address), TraceHalved(address, 3),
            Replaced(address, "warm start"), NewerFormatFound(address),
        ):  # fmt: skip
            metrics.learnt(fact)
    found = page(metrics, [])
    assert {dict(labels).get("model") for _, labels in found} == {None, leader}
    assert {value for (_, labels), value in found.items() if ("model", leader) in labels} == {0}
    metrics.learnt(Deleted(f"{leader}/b"))
    metrics.used(leader)
    assert leader in metrics.choose([leader], (), {})


# ---- the page ----


def test_the_page_of_200_models_is_the_same_as_before_there_were_duels(metrics: Metrics) -> None:
    models = [serving(f"m{at}", queries=3.0) for at in range(200)]
    for one in models:
        metrics.used(one.name)
    statuses = {one.name: ModelStatus(9) for one in models}
    text = metrics.page(models, statuses, StoreHealth(True, 0.0)).decode()
    lines = [line for line in text.splitlines() if not line.startswith("# HELP solar_replacements")]
    words = ("duel", "follower", "promotion")
    assert len(lines) > 10_000
    assert not [line for line in lines if any(word in line for word in words)]


def test_a_model_with_a_duel_has_metrics_among_many_models(metrics: Metrics) -> None:
    names = [f"m{at:03d}" for at in range(300)]
    for name in names[50:]:
        metrics.used(name)
    assert "m010" not in metrics.choose(names, (), {})
    assert {"m010", "m050"} <= set(metrics.choose(names, (), {}, ["m010", "deleted"]))
    assert "deleted" not in metrics.choose(names, (), {}, ["deleted"])


def test_every_metric_of_duels_and_followers_has_a_help_text_with_its_labels(
    metrics: Metrics,
) -> None:
    shop = champion(duel_queries=2.0)
    chosen = chosen_followers({"shop": shop}, {}, {"shop/shop-b": follower("shop-b")}, ())
    found = page(metrics, [shop], *chosen)
    labels: dict[str, set[str]] = {}
    for name, one in found:
        labels.setdefault(name, set()).update(dict(one))
    assert set(DUEL_HELP) <= set(labels)
    for name, text in DUEL_HELP.items():
        assert text.endswith("."), name
        assert not [label for label in labels[name] if label not in text], name
        assert HELP[name] == text


# ---- a running service ----


def test_a_running_service_shows_its_followers_apart_from_models() -> None:
    warm_up()  # the first compilation exceeds the timeout of `until`
    documents = [{"id": "a", "features": [1.0, 0.0]}, {"id": "b", "features": [0.0, 1.0]}]
    event = {"model": "shop", "type": "labels", "documents": documents, "labels": {"b": 1}}
    labels = {"model": "shop-b", "leader": "shop"}
    with serving_service("--workers", "2") as service, service.client() as http:

        def found() -> Series:
            return read(http.get("/metrics").content)

        assert http.put("/models/shop", json={"features": 2}).status_code == 201
        assert http.put("/models/shop-b", json={"follows": "shop"}).status_code == 201
        for at in range(5):
            assert http.post("/feedback", json={**event, "event_id": f"e{at}"}).status_code == 202
        pairs = series("solar_follower_updates", **labels, kind="stepped")
        until(lambda: found().get(pairs, 0.0) > 0)
        until(lambda: found().get(series("solar_follower_lag_records", **labels)) == 0)
        page = found()
        assert page[series("solar_models")] == 1
        assert page[series("solar_learnt_records_total", model="shop")] == 5
        assert page[series("solar_follower_stalled", **labels)] == 0
        names = {name for name, one in page if ("model", "shop-b") in one}
        assert all(name.startswith("solar_follower_") for name in names)
        assert not [name for name, one in page if ("model", "shop/shop-b") in one]
        url = find(service.data)
        assert url is not None
        with store_client(url) as connection:
            connection.hset("solar:{shop}:followers", "shop-b", "stalled")
        until(lambda: found().get(series("solar_follower_stalled", **labels)) == 1)
        assert http.delete("/models/shop-b").status_code == 204
        until(lambda: not [1 for name, _ in found() if name.startswith("solar_follower_")])
