"""The whole loop over HTTP (rank, send feedback, learn) compared with naive sequential code.

The naive code (`tests/oracles.py`) ranks each query with the weights learnt from the previous one.
So every post here waits until it is learnt.
"""

import itertools
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from app.domain.impressions import Impression
from app.evaluation.synthetic import SyntheticData
from app.learning import replay
from app.storage.embedded import server
from app.storage.states import StoredState
from app.storage.store import Store
from tests.api.services import PLAIN, ROOT, Running, serving
from tests.oracles import (
    NaiveReducer,
    NaiveSolarI,
    NaiveSolarII,
    NaiveSolarIIDiagonal,
    average_precision,
    ndcg,
    ranking,
)
from tests.servers import TIMEOUT, with_store
from tests.test_candidates import naive_min_max

N, DOCUMENTS, QUERIES = 6, 8, 20
TOLERANCE = 1e-9
WAIT_UNTIL_LEARNT = {"Prefer": f"wait={TIMEOUT:g}"}
NAMES = [f"feature {k}" for k in range(N)]

Rows = NDArray[np.float32]
Learner = NaiveSolarI | NaiveSolarII

#: The settings of a model, and the naive learner that it must equal.
KINDS: dict[str, tuple[dict[str, Any], Callable[[], Learner]]] = {
    "solar-i": ({"algorithm": "solar-i", "C": 0.05}, lambda: NaiveSolarI(N, 0.05)),
    "solar-ii": ({"gamma": 20.0}, lambda: NaiveSolarII(N, 20.0)),
    "diagonal": (
        {"covariance": "diagonal", "gamma": 20.0},
        lambda: NaiveSolarIIDiagonal(N, 20.0),
    ),
    "query-minmax": (
        {"normalization": "query-minmax", "gamma": 2.0},
        lambda: NaiveSolarII(N, 2.0),
    ),
}

STRATEGIES = [
    "click-skip-above",
    "last-click-skip-above",
    "click-skip-previous",
    "click-no-click-next",
]


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with serving(environ={"SOLAR_WAIT_SECONDS": f"{TIMEOUT:g}"}) as running:
        yield running


@pytest.fixture(scope="module")
def http(service: Running) -> Iterator[httpx.Client]:
    """A client; all models are created before the first use, so the learner finds them together."""
    with service.client() as client:
        for kind, (settings, _) in KINDS.items():
            for name in ("labels", "own", "triplets", "bodies"):
                create(client, f"{name}-{kind}", **settings)
        for strategy in STRATEGIES:
            create(client, strategy, gamma=20.0, clicks=strategy)
        for name in ("min-seq", "both", "batch", "abandoned"):
            create(client, name, gamma=20.0)
        yield client


def create(http: httpx.Client, model: str, **settings: Any) -> None:
    created = http.put(
        f"/models/{model}", json={**PLAIN, "features": NAMES, "pair_bound": 1e6, **settings}
    )
    assert created.status_code == 201, created.text


def synthetic_queries(seed: int, queries: int) -> list[tuple[Rows, list[float]]]:
    """Return synthetic labelled documents, far from 0 to 1, some with a constant feature."""
    synthetic = SyntheticData(N, queries, DOCUMENTS, noise=0.1)
    judged = synthetic.draw(np.random.default_rng(seed))[1]
    found = []
    for at, query in enumerate(judged):
        documents = np.array(query.documents, np.float32)
        if at % 3 == 0:
            documents[:, at % N] = 0.1
        found.append((documents, query.labels.tolist()))
    return found


@dataclass
class NaiveModel:
    """The naive model: it ranks, then learns from feedback."""

    learner: Learner
    normalized: bool = False
    strategy: str = "click-skip-above"
    reducer: NaiveReducer = field(init=False)

    def __post_init__(self) -> None:
        self.reducer = NaiveReducer(self.learner, self.strategy)

    def normalized_rows(self, rows: Rows) -> NDArray[np.float64]:
        return (naive_min_max(rows) if self.normalized else rows).astype(np.float64)

    def scores(self, rows: Rows) -> list[float]:
        return [math.fsum(self.learner.w * row) for row in self.normalized_rows(rows)]


@dataclass
class Conversation:
    """A model over HTTP and its naive counterpart; each event is learnt before the next."""

    http: httpx.Client
    model: str
    naive: NaiveModel
    waits: bool = True
    events: Iterator[int] = field(default_factory=itertools.count)
    seq: int = 0

    def rank(self, rows: Rows, top_k: int | None = None) -> tuple[str, list[int]]:
        """Rank with both models, compare, and return the request's id and the order."""
        documents = [{"id": f"d{at}", "features": row.tolist()} for at, row in enumerate(rows)]
        body = {"model": self.model, "documents": documents, "top_k": top_k, "min_seq": self.seq}
        answered = self.http.post("/rank", json=body)
        assert answered.status_code == 200, answered.text
        answer = answered.json()
        assert answer["version"] == self.seq
        assert answer["logged"]
        scores = self.naive.scores(rows)
        order = ranking(scores)[:top_k]
        assert [one["id"] for one in answer["documents"]] == [f"d{at}" for at in order]
        assert [one["rank"] for one in answer["documents"]] == list(range(1, len(order) + 1))
        answered_scores = [one["score"] for one in answer["documents"]]
        assert answered_scores == pytest.approx([scores[at] for at in order], abs=TOLERANCE, rel=0)
        return answer["request_id"], order

    def post(self, **event: Any) -> None:
        """Post an event, which becomes the next record."""
        if "request_id" not in event:
            event["model"] = self.model
        event["event_id"] = f"e{next(self.events)}"
        answered = self.http.post(
            "/feedback", json=event, headers=WAIT_UNTIL_LEARNT if self.waits else {}
        )
        assert answered.status_code == (200 if self.waits else 202), answered.text
        self.seq += 1
        answer = answered.json()
        assert (answer["accepted"], answer["seq"]) == (1, self.seq)
        assert not self.waits or answer["version"] == self.seq


def conversation(
    http: httpx.Client,
    model: str,
    kind: str,
    waits: bool = True,
    strategy: str = "click-skip-above",
) -> Conversation:
    learner = KINDS[kind][1]()
    return Conversation(http, model, NaiveModel(learner, kind == "query-minmax", strategy), waits)


def stored(service: Running, model: str) -> StoredState:
    url = server.find(service.data)
    assert url is not None
    return with_store(url, lambda store: store.states.load(model))


def square(spread: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Σ from its packed lower triangle, or from its diagonal."""
    if spread.size == N:
        return np.diag(spread)
    found = np.zeros((N, N))
    numbers = iter(spread.tolist())
    for i in range(N):
        for j in range(i + 1):
            found[i, j] = found[j, i] = next(numbers)
    return found


def check_the_same(service: Running, talk: Conversation) -> None:
    """Compare weights, Σ and measures, in the store and over HTTP."""
    # The last event may have no later request; this one waits until its version is served.
    talk.http.post("/rank", json={"model": talk.model, "ids": ["d"], "features": [[0.0] * N],
                                  "log": False, "min_seq": talk.seq})  # fmt: skip
    state, naive = stored(service, talk.model).state, talk.naive.reducer
    assert state.seq == talk.seq
    assert np.abs(state.model.weights).max() > 0.01
    np.testing.assert_allclose(state.model.weights, naive.learner.w, rtol=0, atol=TOLERANCE)
    if isinstance(naive.learner, NaiveSolarII):
        np.testing.assert_allclose(
            square(state.model.spread), naive.learner.sigma, rtol=0, atol=TOLERANCE
        )
    sums = state.measures()
    np.testing.assert_allclose(state.sums[:11], naive.sums(), rtol=0, atol=TOLERANCE)
    assert (sums["stepped"], sums["passive"]) == (naive.stepped, naive.passive)
    assert sums["squared_loss"] == pytest.approx(naive.squared_loss, abs=TOLERANCE, rel=0)
    assert (sums["feedback"], sums["rejected"], sums["refused"]) == (talk.seq, 0, 0)
    assert sums["abandoned"] == len(naive.abandoned)
    check_model_answer(talk)


def check_model_answer(talk: Conversation) -> None:
    """Compare with the answer of `GET /models/{name}`."""
    answer, naive = talk.http.get(f"/models/{talk.model}").json(), talk.naive.reducer
    assert (answer["version"], answer["seq"]) == (talk.seq, talk.seq)
    assert list(answer["weights"]) == NAMES
    assert list(answer["weights"].values()) == pytest.approx(naive.learner.w, abs=TOLERANCE, rel=0)
    queries, *totals = naive.sums()
    assert answer["queries"] == queries
    means = [*answer["ndcg"].values(), answer["map"]]
    means += [*answer["baseline"]["ndcg"].values(), answer["baseline"]["map"]]
    assert means == pytest.approx([total / queries for total in totals], abs=TOLERANCE, rel=0)
    assert answer["abandoned_lists"] == len(naive.abandoned)
    check_errors(answer, [*naive.quality.values()])
    if isinstance(naive.learner, NaiveSolarII):
        deviations = np.sqrt(np.diag(naive.learner.sigma))
        assert list(answer["stddev"].values()) == pytest.approx(deviations, abs=TOLERANCE, rel=0)


def check_errors(answer: dict[str, Any], quality: list[list[float]]) -> None:
    """Compare the standard errors with those of the single queries."""
    leads = [[one[at] - one[at + 5] for at in range(5)] for one in quality]
    for side, values in (
        (answer, [one[:5] for one in quality]),
        (answer["baseline"], [one[5:] for one in quality]),
        (answer["lead"], leads),
    ):
        found = [*side["ndcg_stderr"].values(), side["map_stderr"]]
        naive = [stdev(column) / math.sqrt(len(values)) for column in zip(*values, strict=True)]
        assert found == pytest.approx(naive, abs=1e-7)
    means = [fmean(column) for column in zip(*leads, strict=True)]
    found = [*answer["lead"]["ndcg"].values(), answer["lead"]["map"]]
    assert found == pytest.approx(means, abs=TOLERANCE)


def arranged(rows: Sequence[Any], order: Sequence[int]) -> list[Any]:
    return [rows[at] for at in order]


@pytest.mark.parametrize("kind", KINDS)
def test_labels_on_rankings_equal_the_naive_loop(
    service: Running, http: httpx.Client, kind: str
) -> None:
    talk = conversation(http, f"labels-{kind}", kind)
    measured = []
    for rows, labels in synthetic_queries(1, QUERIES):
        request, order = talk.rank(rows)
        measured.append(arranged(labels, order))
        given = {f"d{at}": label for at, label in enumerate(labels) if label}
        talk.post(type="labels", request_id=request, labels=given)
        shown = talk.naive.normalized_rows(rows)[order]
        talk.naive.reducer.labels(request, shown, arranged(labels, order), order)
    check_the_same(service, talk)
    answer = http.get(f"/models/{talk.model}").json()
    mean = math.fsum(ndcg(labels, 10) for labels in measured) / QUERIES
    assert answer["ndcg"]["10"] == pytest.approx(mean, abs=TOLERANCE, rel=0)
    mean = math.fsum(average_precision(labels) for labels in measured) / QUERIES
    assert answer["map"] == pytest.approx(mean, abs=TOLERANCE, rel=0)
    assert answer["ndcg"]["10"] > answer["baseline"]["ndcg"]["10"], "nothing was learnt"


def test_min_seq_ranks_each_query_with_the_weights_after_the_previous_one(
    service: Running, http: httpx.Client
) -> None:
    talk = conversation(http, "min-seq", "solar-ii", waits=False)
    for rows, labels in synthetic_queries(2, QUERIES):
        request, order = talk.rank(rows)
        given = {f"d{at}": label for at, label in enumerate(labels)}
        talk.post(type="labels", request_id=request, labels=given)
        talk.naive.reducer.labels(
            request, talk.naive.normalized_rows(rows)[order], arranged(labels, order), order
        )
    check_the_same(service, talk)


@pytest.mark.parametrize("kind", KINDS)
def test_labels_with_documents_in_the_event_equal_the_naive_loop(
    service: Running, http: httpx.Client, kind: str
) -> None:
    talk = conversation(http, f"own-{kind}", kind)
    for at, (rows, labels) in enumerate(synthetic_queries(3, 8)):
        documents = [{"id": f"d{d}", "features": row.tolist()} for d, row in enumerate(rows)]
        given = {f"d{d}": label for d, label in enumerate(labels)}
        talk.post(type="labels", query_id=f"q{at}", documents=documents, labels=given)
        talk.naive.reducer.labels(f"q{at}", talk.naive.normalized_rows(rows), labels, None)
    check_the_same(service, talk)


@pytest.mark.parametrize("kind", KINDS)
def test_triplets_equal_the_naive_loop(service: Running, http: httpx.Client, kind: str) -> None:
    talk = conversation(http, f"triplets-{kind}", kind)
    rng = np.random.default_rng(4)
    for at, (rows, _) in enumerate(synthetic_queries(5, 10)):
        pairs_drawn = [tuple(rng.choice(DOCUMENTS, 2, replace=False).tolist()) for _ in range(5)]
        weights = rng.uniform(0.25, 4.0, 5).tolist()
        triplets: list[Any] = [
            [f"d{i}", f"d{j}", weight] for (i, j), weight in zip(pairs_drawn, weights, strict=True)
        ]
        triplets[0], weights[0] = triplets[0][:2], 1.0  # the default weight is 1
        pairs = [(i, j, weight) for (i, j), weight in zip(pairs_drawn, weights, strict=True)]
        if at % 2:
            documents = [{"id": f"d{d}", "features": row.tolist()} for d, row in enumerate(rows)]
            talk.post(type="triplets", query_id=f"q{at}", documents=documents, triplets=triplets)
            talk.naive.reducer.triplets(f"q{at}", talk.naive.normalized_rows(rows), pairs, None)
        else:
            request, order = talk.rank(rows)
            talk.post(type="triplets", request_id=request, triplets=triplets)
            position = {document: shown for shown, document in enumerate(order)}
            shown = [(position[i], position[j], weight) for i, j, weight in pairs]
            talk.naive.reducer.triplets(
                request, talk.naive.normalized_rows(rows)[order], shown, order
            )
    check_the_same(service, talk)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_clicks_in_several_events_count_the_query_once_and_each_pair_once(
    service: Running, http: httpx.Client, strategy: str
) -> None:
    talk = conversation(http, strategy, "solar-ii", strategy=strategy)
    for rows, labels in synthetic_queries(6, 5):
        request, order = talk.rank(rows, top_k=6)
        good = [position for position, at in enumerate(order) if labels[at]] or [5]
        for clicked in ([], good[:1], [4, *good[1:]], [2, good[0]]):
            ids = [f"d{order[position]}" for position in clicked]
            talk.post(type="clicks", request_id=request, clicked=ids)
            talk.naive.reducer.click(
                request, talk.naive.normalized_rows(rows)[order], clicked, order
            )
    check_the_same(service, talk)
    assert http.get(f"/models/{talk.model}").json()["queries"] == 5


ROUNDS: list[list[list[int]]] = [[[]], [[], []], [[], [3]], [[4]], [[2], []], [[]]]


def test_abandoned_rankings_count_apart_until_they_are_clicked(
    service: Running, http: httpx.Client
) -> None:
    talk = conversation(http, "abandoned", "solar-ii")
    for at, (rows, labels) in enumerate(synthetic_queries(11, 12)):
        request, order = talk.rank(rows)
        shown = talk.naive.normalized_rows(rows)[order]
        for clicked in ROUNDS[at % len(ROUNDS)]:
            ids = [f"d{order[position]}" for position in clicked]
            talk.post(type="clicks", request_id=request, clicked=ids)
            talk.naive.reducer.click(request, shown, clicked, order)
        if at == 11:  # labels on an abandoned ranking measure it
            given = {f"d{document}": label for document, label in enumerate(labels)}
            talk.post(type="labels", request_id=request, labels=given)
            talk.naive.reducer.labels(request, shown, arranged(labels, order), order)
    check_the_same(service, talk)
    answer = http.get("/models/abandoned").json()
    assert (answer["queries"], answer["abandoned_lists"]) == (7, 5)


def test_labels_after_clicks_replace_the_clicks_in_the_measures(
    service: Running, http: httpx.Client
) -> None:
    talk = conversation(http, "both", "solar-ii")
    for rows, labels in synthetic_queries(7, 4):
        request, order = talk.rank(rows)
        shown = talk.naive.normalized_rows(rows)[order]
        talk.post(type="clicks", request_id=request, clicked=[f"d{order[3]}"])
        talk.naive.reducer.click(request, shown, [3], order)
        given = {f"d{at}": label for at, label in enumerate(labels)}
        talk.post(type="labels", request_id=request, labels=given)
        talk.naive.reducer.labels(request, shown, arranged(labels, order), order)
    check_the_same(service, talk)


def test_a_batch_of_events_is_learnt_in_the_order_of_the_batch(
    service: Running, http: httpx.Client
) -> None:
    talk = conversation(http, "batch", "solar-ii")
    queries = synthetic_queries(8, 30)
    events = [
        {"event_id": f"b{at}", "type": "labels", "model": "batch", "query_id": f"q{at}",
         "documents": [{"id": f"d{d}", "features": row.tolist()} for d, row in enumerate(rows)],
         "labels": {f"d{d}": label for d, label in enumerate(labels)}}
        for at, (rows, labels) in enumerate(queries)
    ]  # fmt: skip
    answered = http.post("/feedback", json={"events": events}, headers=WAIT_UNTIL_LEARNT)
    assert (answered.status_code, answered.json()["accepted"]) == (200, 30)
    for at, (rows, labels) in enumerate(queries):
        talk.naive.reducer.labels(f"q{at}", talk.naive.normalized_rows(rows), labels, None)
    talk.seq = 30
    check_the_same(service, talk)


def bodies(model: str, rows: Rows) -> dict[str, tuple[str, bytes]]:
    """Return the same documents in every accepted body format."""
    ids = [f"d{at}" for at in range(len(rows))]
    lists = [row.tolist() for row in rows]
    named = [
        {name: value for name, value in zip(NAMES, row, strict=True) if value} for row in lists
    ]
    as_json = {
        "objects": [{"id": i, "features": row} for i, row in zip(ids, lists, strict=True)],
        "names": [{"id": i, "features": row} for i, row in zip(ids, named, strict=True)],
        "both": [
            {"id": i, "features": named[at] if at % 2 else lists[at]} for at, i in enumerate(ids)
        ],
    }
    sent = {
        form: ("application/json", msgspec.json.encode({"model": model, "documents": documents}))
        for form, documents in as_json.items()
    }
    columns = {"model": model, "ids": ids, "features": lists}
    sent["columns"] = ("application/json", msgspec.json.encode(columns))
    raw = {"model": model, "ids": ids, "features": rows.astype("<f4").tobytes()}
    sent["msgpack"] = ("application/msgpack", msgspec.msgpack.encode(raw))
    return sent


@pytest.mark.parametrize("kind", ["solar-ii", "query-minmax"])
def test_objects_names_columns_and_msgpack_give_the_same_ranking_and_impression(
    service: Running, http: httpx.Client, kind: str
) -> None:
    talk = conversation(http, f"bodies-{kind}", kind)
    for rows, labels in synthetic_queries(9, 3):
        request, order = talk.rank(rows)
        given = {f"d{at}": label for at, label in enumerate(labels)}
        talk.post(type="labels", request_id=request, labels=given)
        talk.naive.reducer.labels(
            request, talk.naive.normalized_rows(rows)[order], arranged(labels, order), order
        )
    rows = np.round(synthetic_queries(10, 1)[0][0], 1)  # some features are 0, and omitted by name
    rows[2, :3] = 0.0
    answers = {}
    for form, (media_type, body) in bodies(talk.model, rows).items():
        answer = http.post("/rank", content=body, headers={"content-type": media_type})
        assert answer.status_code == 200, (form, answer.text)
        answers[form] = answer.json()
    listed = [answer["documents"] for answer in answers.values()]
    assert all(one == listed[0] for one in listed)
    order = ranking(talk.naive.scores(rows))
    assert [one["id"] for one in listed[0]] == [f"d{at}" for at in order]
    requests = [answer["request_id"] for answer in answers.values()]
    impressions = logged_impressions(service, talk.model, requests)
    assert all(one == impressions[0] for one in impressions)
    shown = Impression.load(impressions[0])
    assert shown.ids == tuple(f"d{at}" for at in order)
    assert shown.submitted.tolist() == order
    normalized_rows = talk.naive.normalized_rows(rows).astype(np.float32)
    assert shown.documents.tobytes() == normalized_rows[order].tobytes()


def logged_impressions(service: Running, model: str, requests: list[str]) -> list[bytes]:
    epoch, url = stored(service, model).epoch, server.find(service.data)
    assert url is not None
    found = with_store(url, lambda store: store.log.load_impressions(model, epoch, requests))
    return [one.shown for one in found if one is not None]


def test_verify_and_replay_agree_with_the_models_above(
    service: Running, http: httpx.Client
) -> None:
    models = [one["name"] for one in http.get("/models").json()["models"]]
    command = [sys.executable, "-m", "app", "verify", "--data-dir", str(service.data)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("log without gaps, chain and state equal to the replay") == len(models)
    url = server.find(service.data)
    assert url is not None
    found = with_store(url, lambda store: replays(store, models))
    for name, one in found.items():
        assert one.differences() == []
        assert (one.start, one.end) == (0, http.get(f"/models/{name}").json()["seq"])


async def replays(store: Store, models: list[str]) -> dict[str, replay.Replay]:
    return {name: await replay.replay(store, name) for name in models}
