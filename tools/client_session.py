"""A session with a generated client: create a model, rank, send clicks, rank again.

`tools/generated_client.py` runs it next to the package `solar_api` that it generates.
"""

import sys

from solar_api import AuthenticatedClient
from solar_api.api.feedback import feedback
from solar_api.api.jobs import get_job, warm_start
from solar_api.api.models import create_model, get_model
from solar_api.api.operations import readyz
from solar_api.api.ranking import rank
from solar_api.models import (
    ClicksEvent,
    Document,
    DocumentFeaturesByName,
    EventBatch,
    FeedbackAnswer,
    JobDetails,
    JudgedDocument,
    JudgedQuery,
    LabelsEvent,
    LabelsEventLabels,
    ModelDetails,
    NewModel,
    NewModelClicks,
    ProblemBody,
    RankAnswer,
    RankBody,
    Ready,
    TripletsEvent,
    WarmStartBody,
)


def _documents() -> list[Document]:
    by_name = DocumentFeaturesByName.from_dict({"bm25": 7.1, "price": 12.5})
    return [Document(id="d1", features=by_name), Document(id="d7", features=[9.8, 3.0])]


def _rank(client: AuthenticatedClient, min_seq: int | None = None) -> RankAnswer:
    body = RankBody(model="books", documents=_documents(), min_seq=min_seq)
    ranked = rank.sync(client=client, body=body)
    assert isinstance(ranked, RankAnswer), ranked
    return ranked


def _learn(client: AuthenticatedClient) -> None:
    """Click the last document of a ranking; the next ranking has it first."""
    before = _rank(client)
    assert before.logged
    last = before.documents[-1].id
    clicks = ClicksEvent(
        type_="clicks", event_id="e1", request_id=before.request_id, clicked=[last]
    )
    received = feedback.sync(client=client, body=clicks, prefer="wait=20")
    assert isinstance(received, FeedbackAnswer), received
    assert (received.accepted, received.errors) == (1, [])
    assert received.version == received.seq
    after = _rank(client, min_seq=received.seq)
    assert after.version == received.seq
    assert after.documents[0].id == last


def _post_other_feedback(client: AuthenticatedClient) -> None:
    labels = LabelsEvent(
        type_="labels", event_id="e2", labels=LabelsEventLabels.from_dict({"d7": 2}),
        documents=_documents(),
    )  # fmt: skip
    triplets = TripletsEvent(
        type_="triplets", event_id="e3", triplets=[["d7", "d1", 0.5]], documents=_documents()
    )
    received = feedback.sync(
        client=client, body=EventBatch(model="books", events=[labels, triplets])
    )
    assert isinstance(received, FeedbackAnswer), received
    assert (received.accepted, received.errors) == (2, [])


def _train(client: AuthenticatedClient) -> None:
    judged = [JudgedDocument(label=label, features=[label, 3.0]) for label in (2.0, 0.0)]
    body = WarmStartBody(queries=[JudgedQuery(documents=judged)], c=0.01)
    begun = warm_start.sync("books", client=client, body=body)
    assert isinstance(begun, JobDetails), begun
    assert isinstance(get_job.sync(begun.id, client=client), JobDetails)


def main(url: str, key: str) -> None:
    """Call the service and check the typed answers."""
    with AuthenticatedClient(base_url=url, token=key) as client:
        assert isinstance(readyz.sync(client=client), Ready)
        settings = NewModel(
            features=["bm25", "price"], clicks=NewModelClicks.CLICK_SKIP_ABOVE, prior=0
        )
        made = create_model.sync_detailed("books", client=client, body=settings)
        assert made.status_code == 201
        assert isinstance(made.parsed, ModelDetails)
        _learn(client)
        _post_other_feedback(client)
        _train(client)
        learnt = get_model.sync("books", client=client)
        assert isinstance(learnt, ModelDetails), learnt
        assert learnt.feedback >= 1
        refused = rank.sync(client=client, body=RankBody(model="unknown", documents=_documents()))
        assert isinstance(refused, ProblemBody), refused
        assert refused.status == 404


if __name__ == "__main__":
    main(*sys.argv[1:])
