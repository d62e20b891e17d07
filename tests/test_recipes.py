"""Recipes: answers of other systems, recorded from their documentation or invented, are ranked."""

import doctest
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import httpx
import pytest

from examples.recipes import elasticsearch, personalizer, solr
from tests.api.services import PLAIN, serving
from tests.servers import until

LOGGED = [
    ("1370", [{"name": "title_query", "value": 9.5}, {"name": "body_query", "value": 10.8}]),
    ("7555", [{"name": "title_query", "value": 12.3}, {"name": "body_query"}]),
    ("1369", [{"name": "title_query", "value": 0.0}, {"name": "body_query", "value": 3.1}]),
]
ELASTICSEARCH = {
    "took": 3,
    "hits": {
        "total": {"value": 3, "relation": "eq"},
        "hits": [
            {"_index": "films", "_id": name, "_score": 1.0,
             "fields": {"_ltrlog": [{"solar": logged}]}, "matched_queries": ["solar_features"]}
            for name, logged in LOGGED
        ],
    },
}  # fmt: skip
SOLR = {
    "responseHeader": {"status": 0, "QTime": 1},
    "response": {"numFound": 2, "start": 0, "maxScore": 1.9, "docs": [
        {"id": "GB18030TEST", "score": 1.9, "[features]": "recency=0.02,is_book=0.0,score=1.9"},
        {"id": "UTF8TEST", "score": 1.5, "[features]": "recency=0.02,is_book=1.0,score=1.5"},
    ]},
}  # fmt: skip
ACTIONS = [
    {"id": "news", "features": [{"topic": "news", "minutes": 3}, {"tags": ["a", "b"]}]},
    {"id": "sports", "features": [{"topic": "sports", "minutes": 5}]},
    {"id": "films", "features": [{"topic": "films"}]},
]
PERSONALIZER: dict[str, Any] = {
    "contextFeatures": [{"device": {"mobile": True}}, {"hour": "morning"}],
    "actions": ACTIONS, "excludedActions": ["films"], "eventId": "75269AD0",
    "deferActivation": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving() as started, started.client() as opened:
        yield opened


def ranked(client: httpx.Client, body: dict[str, Any], features: list[str]) -> dict[str, Any]:
    model = {"features": features, "normalization": "query-minmax", **PLAIN}
    assert client.put(f"/models/{body['model']}", json=model).status_code == 201
    answer = client.post("/rank", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert sorted(one["id"] for one in found["documents"]) == sorted(
        one["id"] for one in body["documents"]
    )
    return found


def test_vectors_that_elasticsearch_logs_are_ranked(client: httpx.Client) -> None:
    documents = elasticsearch.documents(ELASTICSEARCH)
    assert [one["id"] for one in documents] == ["1370", "7555", "1369"]
    assert documents[1]["features"] == {"title_query": 12.3}
    ranked(client, {"model": "films", "documents": documents}, ["title_query", "body_query"])


def test_a_search_of_elasticsearch_asks_for_the_entry_that_is_read() -> None:
    body = elasticsearch.search_body({"match": {"title": "rambo"}}, "films", {"keywords": "rambo"})
    [logging] = body["query"]["bool"]["filter"]
    log = body["ext"]["ltr_log"]["log_specs"]
    assert logging["sltr"]["_name"] == log["named_query"]
    [first, *_] = ELASTICSEARCH["hits"]["hits"]  # type: ignore[index]
    assert log["name"] in first["fields"]["_ltrlog"][0]


@pytest.mark.parametrize(
    "hit", [{"_id": "1"}, {"_id": "1", "fields": {"_ltrlog": [{"other": []}]}}]
)
def test_a_hit_without_the_entry_has_no_features(hit: dict[str, Any]) -> None:
    assert elasticsearch.documents({"hits": {"hits": [hit]}}) == [{"id": "1", "features": {}}]


def test_vectors_that_solr_returns_are_ranked(client: httpx.Client) -> None:
    documents = solr.documents(SOLR)
    assert documents[1]["features"] == {"recency": 0.02, "is_book": 1.0, "score": 1.5}
    ranked(client, {"model": "items", "documents": documents}, ["recency", "is_book", "score"])


def test_sparse_vectors_of_solr_may_have_other_separators() -> None:
    answer = {"response": {"docs": [{"sku": 7, "[features]": "a:0.1 b:2E-5"}, {"sku": 8}]}}
    assert solr.documents(answer, "sku", ":", " ") == [
        {"id": "7", "features": {"a": 0.1, "b": 2e-5}}, {"id": "8", "features": {}},
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["red lamp", "dad's", "a\\", "]", "'] other"])
def test_any_text_of_a_user_stays_one_value_for_solr(text: str) -> None:
    fields = solr.search_parameters("*:*", "shop", {"user_query": text})["fl"]
    quoted = fields.removeprefix("id,score,[features store=shop efi.user_query=").removesuffix("]")
    assert quoted[0] == quoted[-1] == "'"
    inside = quoted[1:-1].replace("\\\\", "").replace("\\'", "")
    assert "'" not in inside
    assert "\\" not in inside


def test_a_request_to_personalizer_is_ranked_and_its_reward_learnt(client: httpx.Client) -> None:
    names = personalizer.feature_names([PERSONALIZER])
    assert {"minutes", "tags=a", "topic=news*hour=morning"} <= set(names)
    body = personalizer.rank_body(PERSONALIZER, "home", names, top_k=2)
    assert [one["id"] for one in body["documents"]] == ["news", "sports"]
    answer = personalizer.rank_answer(ranked(client, body, names))
    assert answer["eventId"] == "75269AD0"
    last = answer["ranking"][-1]["id"]
    for accepted in (1, 0):  # a repeated reward counts once
        event = personalizer.reward_event("home", answer["eventId"], last, 0.5)
        assert client.post("/feedback", json=event).json()["accepted"] == accepted
    until(lambda: client.get("/models/home").json()["version"] == 1)
    learnt = {**body, "request_id": "next", "explore": False, "min_seq": 1}
    again = client.post("/rank", json=learnt).json()
    assert again["documents"][0]["id"] == last


def test_no_reward_is_a_list_without_a_click() -> None:
    for value in (0, -1.0):
        event = personalizer.reward_event("home", "e", "news", value)
        assert event["clicked"] == []
        assert "gains" not in event
    assert personalizer.reward_event("home", "e", "news", 1)["gains"] == {"news": 4.0}


def test_too_many_features_are_refused() -> None:
    with pytest.raises(ValueError, match="expected at most 3"):
        personalizer.feature_names([PERSONALIZER], most=3)


@pytest.mark.parametrize("module", [elasticsearch, personalizer, solr])
def test_the_examples_of_a_recipe_run(module: ModuleType) -> None:
    failed, tried = doctest.testmod(module)
    assert tried
    assert failed == 0
