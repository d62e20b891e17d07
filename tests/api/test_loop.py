"""The whole loop over HTTP — rank, give feedback, learn — against naive code that does it in turn.

The naive side (`tests/oracles.py`) ranks each query with the weights after the query before it, so
every post here waits until it is learnt.
"""

import itertools
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from app.domain.impressions import Impression
from app.evaluation.synthetic import World
from app.learning import replay
from app.storage.embedded import server
from app.storage.states import StoredState
from app.storage.store import Store
from tests.api.services import PLAIN, ROOT, Running, serving
from tests.oracles import (
    NaiveFold,
    NaiveSolarI,
    NaiveSolarII,
    NaiveSolarIIDiagonal,
    average_precision,
    ndcg,
    ranking,
)
from tests.servers import PATIENCE, with_store
from tests.test_candidates import naive_min_max

N, DOCUMENTS, QUERIES = 6, 8, 20
CLOSE = 1e-9
LEARNT = {"Prefer": f"wait={PATIENCE:g}"}
NAMES = [f"feature {k}" for k in range(N)]

Rows = NDArray[np.float32]
Learner = NaiveSolarI | NaiveSolarII

#: What is asked for, and the naive learner that it should be.
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
    with serving(environ={"SOLAR_WAIT_SECONDS": f"{PATIENCE:g}"}) as running:
        yield running


@pytest.fixture(scope="module")
def http(service: Running) -> Iterator[httpx.Client]:
    """A client; the models are there before the first of them is used, and found all at once."""
    with service.client() as client:
        for kind, (settings, _) in KINDS.items():
            for name in ("labels", "own", "triplets", "bodies"):
                create(client, f"{name}-{kind}", **settings)
        for strategy in STRATEGIES:
            create(client, strategy, gamma=20.0, clicks=strategy)
        for name in ("min-seq", "both", "batch"):
            create(client, name, gamma=20.0)
        yield client


def create(http: httpx.Client, model: str, **settings: Any) -> None:
    created = http.put(f"/models/{model}", json={**PLAIN, "features": NAMES, **settings})
    assert created.status_code == 201, created.text


def invented(seed: int, queries: int) -> list[tuple[Rows, list[float]]]:
    """Documents far from 0 to 1, with a constant feature here and there, and their labels."""
    world = World(N, queries, DOCUMENTS, noise=0.1)
    judged = world.draw(np.random.default_rng(seed))[1]
    found = []
    for at, query in enumerate(judged):
        documents = np.array(query.documents, np.float32)
        if at % 3 == 0:
            documents[:, at % N] = 0.1
        found.append((documents, query.labels.tolist()))
    return found


@dataclass
class Plain:
    """The naive side of a model: it ranks, then it is told what users did."""

    learner: Learner
    normalized: bool = False
    strategy: str = "click-skip-above"
    fold: NaiveFold = field(init=False)

    def __post_init__(self) -> None:
        self.fold = NaiveFold(self.learner, self.strategy)

    def seen(self, rows: Rows) -> NDArray[np.float64]:
        return (naive_min_max(rows) if self.normalized else rows).astype(np.float64)

    def scores(self, rows: Rows) -> list[float]:
        return [math.fsum(self.learner.w * row) for row in self.seen(rows)]


@dataclass
class Conversation:
    """A model over HTTP and the naive one beside it; each event is learnt before the next."""

    http: httpx.Client
    model: str
    plain: Plain
    waits: bool = True
    events: Iterator[int] = field(default_factory=itertools.count)
    seq: int = 0

    def rank(self, rows: Rows, top_k: int | None = None) -> tuple[str, list[int]]:
        """The request's id and the order; both sides must agree on it."""
        documents = [{"id": f"d{at}", "features": row.tolist()} for at, row in enumerate(rows)]
        body = {"model": self.model, "documents": documents, "top_k": top_k, "min_seq": self.seq}
        answered = self.http.post("/rank", json=body)
        assert answered.status_code == 200, answered.text
        answer = answered.json()
        assert answer["version"] == self.seq
        assert answer["logged"]
        scores = self.plain.scores(rows)
        order = ranking(scores)[:top_k]
        assert [one["id"] for one in answer["documents"]] == [f"d{at}" for at in order]
        assert [one["rank"] for one in answer["documents"]] == list(range(1, len(order) + 1))
        told = [one["score"] for one in answer["documents"]]
        assert told == pytest.approx([scores[at] for at in order], abs=CLOSE, rel=0)
        return answer["request_id"], order

    def post(self, **event: Any) -> None:
        """Post an event; it is the next record."""
        if "request_id" not in event:
            event["model"] = self.model
        event["event_id"] = f"e{next(self.events)}"
        answered = self.http.post("/feedback", json=event, headers=LEARNT if self.waits else {})
        assert answered.status_code == (200 if self.waits else 202), answered.text
        self.seq += 1
        told = answered.json()
        assert (told["accepted"], told["seq"]) == (1, self.seq)
        assert not self.waits or told["version"] == self.seq


def conversation(
    http: httpx.Client,
    model: str,
    kind: str,
    waits: bool = True,
    strategy: str = "click-skip-above",
) -> Conversation:
    learner = KINDS[kind][1]()
    return Conversation(http, model, Plain(learner, kind == "query-minmax", strategy), waits)


def stored(service: Running, model: str) -> StoredState:
    url = server.find(service.data)
    assert url is not None
    return with_store(url, lambda store: store.states.load(model))


def square(spread: NDArray[np.float64]) -> NDArray[np.float64]:
    """Σ from its lower triangle, row by row, or from its diagonal."""
    if spread.size == N:
        return np.diag(spread)
    found = np.zeros((N, N))
    numbers = iter(spread.tolist())
    for i in range(N):
        for j in range(i + 1):
            found[i, j] = found[j, i] = next(numbers)
    return found


def check_the_same(service: Running, talk: Conversation) -> None:
    """Weights, Σ and measures, from the store and as they are told."""
    # An event may be followed by no request: its version is committed, as the post has waited.
    talk.http.post("/rank", json={"model": talk.model, "ids": ["d"], "features": [[0.0] * N],
                                  "log": False, "min_seq": talk.seq})  # fmt: skip
    state, plain = stored(service, talk.model).state, talk.plain.fold
    assert state.seq == talk.seq
    assert np.abs(state.model.weights).max() > 0.01
    np.testing.assert_allclose(state.model.weights, plain.learner.w, rtol=0, atol=CLOSE)
    if isinstance(plain.learner, NaiveSolarII):
        np.testing.assert_allclose(
            square(state.model.spread), plain.learner.sigma, rtol=0, atol=CLOSE
        )
    sums = state.measures()
    np.testing.assert_allclose(state.sums[:11], plain.sums(), rtol=0, atol=CLOSE)
    assert (sums["stepped"], sums["passive"]) == (plain.stepped, plain.passive)
    assert sums["squared_loss"] == pytest.approx(plain.squared_loss, abs=CLOSE, rel=0)
    assert (sums["feedback"], sums["rejected"], sums["refused"]) == (talk.seq, 0, 0)
    check_told(talk)


def check_told(talk: Conversation) -> None:
    """The same, by `GET /models/{name}`."""
    told, plain = talk.http.get(f"/models/{talk.model}").json(), talk.plain.fold
    assert (told["version"], told["seq"]) == (talk.seq, talk.seq)
    assert list(told["weights"]) == NAMES
    assert list(told["weights"].values()) == pytest.approx(plain.learner.w, abs=CLOSE, rel=0)
    queries, *totals = plain.sums()
    assert told["queries"] == queries
    said = [*told["ndcg"].values(), told["map"]]
    said += [*told["baseline"]["ndcg"].values(), told["baseline"]["map"]]
    assert said == pytest.approx([total / queries for total in totals], abs=CLOSE, rel=0)
    if isinstance(plain.learner, NaiveSolarII):
        deviations = np.sqrt(np.diag(plain.learner.sigma))
        assert list(told["stddev"].values()) == pytest.approx(deviations, abs=CLOSE, rel=0)


def arranged(rows: Sequence[Any], order: Sequence[int]) -> list[Any]:
    return [rows[at] for at in order]


@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_answers_give_what_a_plain_sequential_loop_gives(
    service: Running, http: httpx.Client, kind: str
) -> None:
    talk = conversation(http, f"labels-{kind}", kind)
    measured = []
    for rows, labels in invented(1, QUERIES):
        request, order = talk.rank(rows)
        measured.append(arranged(labels, order))
        given = {f"d{at}": label for at, label in enumerate(labels) if label}
        talk.post(type="labels", request_id=request, labels=given)
        shown = talk.plain.seen(rows)[order]
        talk.plain.fold.labels(request, shown, arranged(labels, order), order)
    check_the_same(service, talk)
    told = http.get(f"/models/{talk.model}").json()
    mean = math.fsum(ndcg(labels, 10) for labels in measured) / QUERIES
    assert told["ndcg"]["10"] == pytest.approx(mean, abs=CLOSE, rel=0)
    mean = math.fsum(average_precision(labels) for labels in measured) / QUERIES
    assert told["map"] == pytest.approx(mean, abs=CLOSE, rel=0)
    assert told["ndcg"]["10"] > told["baseline"]["ndcg"]["10"], "nothing was learnt"


def test_min_seq_alone_lets_each_query_be_ranked_by_the_model_after_the_one_before(
    service: Running, http: httpx.Client
) -> None:
    talk = conversation(http, "min-seq", "solar-ii", waits=False)
    for rows, labels in invented(2, QUERIES):
        request, order = talk.rank(rows)
        given = {f"d{at}": label for at, label in enumerate(labels)}
        talk.post(type="labels", request_id=request, labels=given)
        talk.plain.fold.labels(
            request, talk.plain.seen(rows)[order], arranged(labels, order), order
        )
    check_the_same(service, talk)


@pytest.mark.parametrize("kind", KINDS)
def test_labels_with_their_own_documents_are_ranked_and_learnt_alike(
    service: Running, http: httpx.Client, kind: str
) -> None:
    talk = conversation(http, f"own-{kind}", kind)
    for at, (rows, labels) in enumerate(invented(3, 8)):
        documents = [{"id": f"d{d}", "features": row.tolist()} for d, row in enumerate(rows)]
        given = {f"d{d}": label for d, label in enumerate(labels)}
        talk.post(type="labels", query_id=f"q{at}", documents=documents, labels=given)
        talk.plain.fold.labels(f"q{at}", talk.plain.seen(rows), labels, None)
    check_the_same(service, talk)


@pytest.mark.parametrize("kind", KINDS)
def test_triplets_of_an_answer_and_of_own_documents_give_what_plain_code_gives(
    service: Running, http: httpx.Client, kind: str
) -> None:
    talk = conversation(http, f"triplets-{kind}", kind)
    rng = np.random.default_rng(4)
    for at, (rows, _) in enumerate(invented(5, 10)):
        said = [tuple(rng.choice(DOCUMENTS, 2, replace=False).tolist()) for _ in range(5)]
        weights = rng.uniform(0.25, 4.0, 5).tolist()
        triplets: list[Any] = [
            [f"d{i}", f"d{j}", weight] for (i, j), weight in zip(said, weights, strict=True)
        ]
        triplets[0], weights[0] = triplets[0][:2], 1.0  # without a weight it is 1
        pairs = [(i, j, weight) for (i, j), weight in zip(said, weights, strict=True)]
        if at % 2:
            documents = [{"id": f"d{d}", "features": row.tolist()} for d, row in enumerate(rows)]
            talk.post(type="triplets", query_id=f"q{at}", documents=documents, triplets=triplets)
            talk.plain.fold.triplets(f"q{at}", talk.plain.seen(rows), pairs, None)
        else:
            request, order = talk.rank(rows)
            talk.post(type="triplets", request_id=request, triplets=triplets)
            place = {document: shown for shown, document in enumerate(order)}
            shown = [(place[i], place[j], weight) for i, j, weight in pairs]
            talk.plain.fold.triplets(request, talk.plain.seen(rows)[order], shown, order)
    check_the_same(service, talk)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_clicks_in_several_events_count_their_query_once_and_give_each_pair_once(
    service: Running, http: httpx.Client, strategy: str
) -> None:
    talk = conversation(http, strategy, "solar-ii", strategy=strategy)
    for rows, labels in invented(6, 5):
        request, order = talk.rank(rows, top_k=6)
        good = [place for place, at in enumerate(order) if labels[at]] or [5]
        for clicked in ([], good[:1], [4, *good[1:]], [2, good[0]]):
            ids = [f"d{order[place]}" for place in clicked]
            talk.post(type="clicks", request_id=request, clicked=ids)
            talk.plain.fold.click(request, talk.plain.seen(rows)[order], clicked, order)
    check_the_same(service, talk)
    assert http.get(f"/models/{talk.model}").json()["queries"] == 5


def test_judgements_after_clicks_take_the_place_of_the_clicks_in_the_measures(
    service: Running, http: httpx.Client
) -> None:
    talk = conversation(http, "both", "solar-ii")
    for rows, labels in invented(7, 4):
        request, order = talk.rank(rows)
        shown = talk.plain.seen(rows)[order]
        talk.post(type="clicks", request_id=request, clicked=[f"d{order[3]}"])
        talk.plain.fold.click(request, shown, [3], order)
        given = {f"d{at}": label for at, label in enumerate(labels)}
        talk.post(type="labels", request_id=request, labels=given)
        talk.plain.fold.labels(request, shown, arranged(labels, order), order)
    check_the_same(service, talk)


def test_a_batch_of_events_is_learnt_in_the_order_of_the_batch(
    service: Running, http: httpx.Client
) -> None:
    talk = conversation(http, "batch", "solar-ii")
    queries = invented(8, 30)
    events = [
        {"event_id": f"b{at}", "type": "labels", "model": "batch", "query_id": f"q{at}",
         "documents": [{"id": f"d{d}", "features": row.tolist()} for d, row in enumerate(rows)],
         "labels": {f"d{d}": label for d, label in enumerate(labels)}}
        for at, (rows, labels) in enumerate(queries)
    ]  # fmt: skip
    answered = http.post("/feedback", json={"events": events}, headers=LEARNT)
    assert (answered.status_code, answered.json()["accepted"]) == (200, 30)
    for at, (rows, labels) in enumerate(queries):
        talk.plain.fold.labels(f"q{at}", talk.plain.seen(rows), labels, None)
    talk.seq = 30
    check_the_same(service, talk)


def bodies(model: str, rows: Rows) -> dict[str, tuple[str, bytes]]:
    """The same documents in every way in which they may be sent."""
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
        way: ("application/json", msgspec.json.encode({"model": model, "documents": documents}))
        for way, documents in as_json.items()
    }
    columns = {"model": model, "ids": ids, "features": lists}
    sent["columns"] = ("application/json", msgspec.json.encode(columns))
    raw = {"model": model, "ids": ids, "features": rows.astype("<f4").tobytes()}
    sent["msgpack"] = ("application/msgpack", msgspec.msgpack.encode(raw))
    return sent


@pytest.mark.parametrize("kind", ["solar-ii", "query-minmax"])
def test_objects_names_columns_and_msgpack_give_one_ranking_and_one_impression(
    service: Running, http: httpx.Client, kind: str
) -> None:
    talk = conversation(http, f"bodies-{kind}", kind)
    for rows, labels in invented(9, 3):
        request, order = talk.rank(rows)
        given = {f"d{at}": label for at, label in enumerate(labels)}
        talk.post(type="labels", request_id=request, labels=given)
        talk.plain.fold.labels(
            request, talk.plain.seen(rows)[order], arranged(labels, order), order
        )
    rows = np.round(invented(10, 1)[0][0], 1)  # some features are 0, and may be left out by name
    rows[2, :3] = 0.0
    answers = {}
    for way, (media_type, body) in bodies(talk.model, rows).items():
        answer = http.post("/rank", content=body, headers={"content-type": media_type})
        assert answer.status_code == 200, (way, answer.text)
        answers[way] = answer.json()
    listed = [answer["documents"] for answer in answers.values()]
    assert all(one == listed[0] for one in listed)
    order = ranking(talk.plain.scores(rows))
    assert [one["id"] for one in listed[0]] == [f"d{at}" for at in order]
    requests = [answer["request_id"] for answer in answers.values()]
    impressions = remembered(service, talk.model, requests)
    assert all(one == impressions[0] for one in impressions)
    shown = Impression.load(impressions[0])
    assert shown.ids == tuple(f"d{at}" for at in order)
    assert shown.submitted.tolist() == order
    seen = talk.plain.seen(rows).astype(np.float32)
    assert shown.documents.tobytes() == seen[order].tobytes()


def remembered(service: Running, model: str, requests: list[str]) -> list[bytes]:
    epoch, url = stored(service, model).epoch, server.find(service.data)
    assert url is not None
    found = with_store(url, lambda store: store.log.recall(model, epoch, requests))
    return [one.shown for one in found if one is not None]


def test_verify_and_replay_agree_with_all_that_was_learnt_above(
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
