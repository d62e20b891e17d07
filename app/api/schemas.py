"""The bodies on the wire, as they are accepted and as they are documented."""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from app.training.options import Training

Name = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$", description="of a model")]
Identity = Annotated[str, Meta(min_length=1, description="without control characters")]
Source = Annotated[str, Meta(max_length=64)]
Count = Annotated[int, Meta(ge=1)]
Sequence = Annotated[int, Meta(ge=0)]

#: How clicks are read.
Reading = Literal[
    "debiased", "fair-pairs", "click-skip-above", "last-click-skip-above", "click-skip-previous",
    "click-no-click-next",
]  # fmt: skip


Features: TypeAlias = list[float] | dict[str, float]


class Document(Struct, forbid_unknown_fields=True):
    """A document: features in the model's order, or by name (absent is 0)."""

    id: Identity
    features: Features


class Asked(Struct, forbid_unknown_fields=True, kw_only=True):
    """What all bodies of /rank share."""

    model: Name = "default"
    query_id: str = ""
    request_id: Identity | None = None
    top_k: Count | None = None
    explore: bool | None = None
    pinned: list[Identity] = []
    explain: bool = False
    log: bool = True
    min_seq: Sequence | None = None


class RankBody(Asked, forbid_unknown_fields=True, kw_only=True):
    """Documents to rank: as objects, or as columns (`ids` and `features`)."""

    documents: list[Document] | UnsetType = UNSET
    ids: list[Identity] | UnsetType = UNSET
    features: list[list[float]] | UnsetType = UNSET


class BinaryRankBody(Asked, forbid_unknown_fields=True, kw_only=True):
    """The same in msgpack: `features` are rows of little-endian float32, one after the other."""

    ids: list[Identity]
    features: bytes


AnyRankBody: TypeAlias = RankBody | BinaryRankBody


class EventFields(Struct, tag_field="type", forbid_unknown_fields=True, kw_only=True):
    """What all events share."""

    event_id: Identity
    model: Name | UnsetType = UNSET
    query_id: str = ""
    source: Source | UnsetType = UNSET


class Clicks(EventFields, tag="clicks", kw_only=True):
    """Which documents of an answer were clicked, in that order; none is fine."""

    request_id: Identity
    clicked: list[Identity]


class Triplet(Struct, array_like=True, forbid_unknown_fields=True):
    """`[preferred, other]` or `[preferred, other, weight]`, by document id."""

    preferred: Identity
    other: Identity
    weight: float = 1.0


class Triplets(EventFields, tag="triplets", kw_only=True):
    """Which document is preferred to which, of an answer or of documents sent along."""

    triplets: list[Triplet]
    request_id: Identity | UnsetType = UNSET
    documents: list[Document] | UnsetType = UNSET


class Labels(EventFields, tag="labels", kw_only=True):
    """How relevant documents are, 0 to 30; one without a label has 0."""

    labels: dict[str, Annotated[float, Meta(ge=0, le=30)]]
    request_id: Identity | UnsetType = UNSET
    documents: list[Document] | UnsetType = UNSET


AnyEvent: TypeAlias = Clicks | Triplets | Labels


class Envelope(Struct):
    """Just enough to tell a batch from one event."""

    events: list[Raw] | UnsetType = UNSET


class RawEventBatch(Struct, forbid_unknown_fields=True):
    """Many events of one model; each is read, and refused, on its own."""

    events: list[Raw]


class Events(Struct, forbid_unknown_fields=True):
    """Many events of one model, as they are documented."""

    events: list[AnyEvent]


class NewModel(Struct, forbid_unknown_fields=True, kw_only=True):
    """What a model is to be; `features` are names, or a count (`f1` … `fn`).

    `explore` is whether lists are varied (null: if `clicks` learns from that), `prior` what the
    order as submitted weighs at first (null: as the algorithm has it by default).
    """

    features: (
        list[Annotated[str, Meta(min_length=1, max_length=128)]]
        | Annotated[int, Meta(ge=1, le=100_000)]
    )
    algorithm: Literal["solar-i", "solar-ii"] = "solar-ii"
    covariance: Literal["full", "diagonal"] = "full"
    C: float = 1e-5
    gamma: float = 1e4
    normalization: Literal["none", "query-minmax"] = "none"
    clicks: Reading = "debiased"
    explore: bool | None = None
    prior: float | None = None


class Tuning(Struct, forbid_unknown_fields=True, kw_only=True):
    """Other hyper-parameters; what is left out stays."""

    C: float | UnsetType = UNSET
    gamma: float | UnsetType = UNSET
    clicks: Reading | UnsetType = UNSET
    explore: bool | UnsetType = UNSET


class JudgedDocument(Struct, forbid_unknown_fields=True, kw_only=True):
    """A document and how relevant it is, 0 to 30."""

    label: Annotated[float, Meta(ge=0, le=30)]
    features: Features
    id: str = ""


class JudgedQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """A query's documents with their labels."""

    documents: Annotated[list[JudgedDocument], Meta(min_length=1)]
    query_id: str = ""


class WarmStart(Training, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Judged queries, and how to train on them."""

    queries: Annotated[list[JudgedQuery], Meta(min_length=1)]


class Rollback(Struct, forbid_unknown_fields=True):
    """Back to a kept version."""

    version: Sequence


decode_rank = msgspec.json.Decoder(RankBody).decode
decode_binary_rank = msgspec.msgpack.Decoder(BinaryRankBody).decode
decode_envelope = msgspec.json.Decoder(Envelope).decode
decode_batch = msgspec.json.Decoder(RawEventBatch).decode
decode_event = msgspec.json.Decoder(AnyEvent).decode
decode_new_model = msgspec.json.Decoder(NewModel).decode
decode_tuning = msgspec.json.Decoder(Tuning).decode
decode_warm_start = msgspec.json.Decoder(WarmStart).decode
decode_rollback = msgspec.json.Decoder(Rollback).decode
encode = msgspec.json.Encoder().encode


def components() -> tuple[dict[str, Any], dict[str, Any]]:
    """For OpenAPI: the schema of each documented body by its name, and what they refer to."""
    bodies = (
        RankBody, BinaryRankBody, Clicks, Triplets, Labels, Events, NewModel, Tuning, Rollback,
        WarmStart,
    )  # fmt: skip
    template = "#/components/schemas/{name}"
    found, parts = msgspec.json.schema_components(bodies, ref_template=template)
    return {body.__name__: schema for body, schema in zip(bodies, found, strict=True)}, parts
