"""The bodies and answers of /rank and /feedback: msgspec, as they are read and documented."""

from collections.abc import Callable, Collection, Iterable
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

Name = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$", description="the name of a model")]
Identity = Annotated[str, Meta(min_length=1, description="without control characters")]
Source = Annotated[str, Meta(max_length=64, description="who posts; else the name of the key")]
Count = Annotated[int, Meta(ge=1)]
Sequence = Annotated[int, Meta(ge=0)]


FeaturesByName = Annotated[dict[str, float], Meta(title="FeaturesByName")]
Features: TypeAlias = list[float] | FeaturesByName


class Document(Struct, forbid_unknown_fields=True):
    """A document: features in the model's order, or by name (absent is 0)."""

    id: Identity
    features: Features


class Asked(Struct, forbid_unknown_fields=True, kw_only=True):
    """What all bodies of /rank share."""

    model: Name = "default"
    query_id: Annotated[str, Meta(description="yours; comes back")] = ""
    request_id: Annotated[Identity | None, Meta(description="yours; null: a new one")] = None
    top_k: Annotated[Count | None, Meta(description="documents that come back; null: all")] = None
    explore: Annotated[bool | None, Meta(description="vary the list; null: as the model")] = None
    pinned: Annotated[list[Identity], Meta(description="documents that keep their places")] = []
    explain: Annotated[bool, Meta(description="add what each feature contributes")] = False
    log: Annotated[bool, Meta(description="remember the list for feedback")] = True
    min_seq: Annotated[Sequence | None, Meta(description="wait for this record")] = None


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

    event_id: Annotated[Identity, Meta(description="yours; posting it again is safe")]
    model: Name | UnsetType = UNSET
    query_id: str = ""
    source: Source | UnsetType = UNSET


class ClicksEvent(EventFields, tag="clicks", kw_only=True):
    """Which documents of an answer were clicked, in that order; none is fine."""

    request_id: Identity
    clicked: list[Identity]


class Triplet(Struct, array_like=True, forbid_unknown_fields=True):
    """`[preferred, other]` or `[preferred, other, weight]`, by document id."""

    preferred: Identity
    other: Identity
    weight: float = 1.0


class TripletsEvent(EventFields, tag="triplets", kw_only=True):
    """Which document is preferred to which, of an answer or of documents sent along."""

    triplets: list[Triplet]
    request_id: Identity | UnsetType = UNSET
    documents: list[Document] | UnsetType = UNSET


class LabelsEvent(EventFields, tag="labels", kw_only=True):
    """How relevant documents are, 0 to 30; one without a label has 0."""

    labels: dict[str, Annotated[float, Meta(ge=0, le=30)]]
    request_id: Identity | UnsetType = UNSET
    documents: list[Document] | UnsetType = UNSET


AnyEvent: TypeAlias = ClicksEvent | TripletsEvent | LabelsEvent


class Envelope(Struct):
    """Just enough to tell a batch from one event."""

    events: list[Raw] | UnsetType = UNSET


class RawEventBatch(Struct, forbid_unknown_fields=True):
    """Many events of one model; each is read, and refused, on its own."""

    events: list[Raw]
    model: Name | UnsetType = UNSET


class EventBatch(Struct, forbid_unknown_fields=True):
    """Many events of one model, as they are documented; `model` is that of all of them."""

    events: list[AnyEvent]
    model: Name | UnsetType = UNSET


class JudgedDocument(Struct, forbid_unknown_fields=True, kw_only=True):
    """A document and how relevant it is, 0 to 30."""

    label: Annotated[float, Meta(ge=0, le=30)]
    features: Features
    id: str = ""


class JudgedQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """A query's documents with their labels."""

    documents: Annotated[list[JudgedDocument], Meta(min_length=1)]
    query_id: str = ""


class RankedDocument(Struct):
    """A document in the answer of /rank."""

    id: str
    rank: int
    score: float
    contributions: dict[str, float] | UnsetType = UNSET
    stddev: float | UnsetType = UNSET


class RankAnswer(Struct):
    """The answer of /rank."""

    request_id: Annotated[str, Meta(description="for feedback")]
    query_id: str
    model: str
    version: Annotated[int, Meta(description="the last record in the weights")]
    explored: Annotated[bool, Meta(description="the list was varied")]
    logged: Annotated[bool, Meta(description="the list is remembered for feedback")]
    degraded: Annotated[bool, Meta(description="from memory: the store is unreachable")]
    documents: list[RankedDocument]


class RefusedEvent(Struct):
    """Why an event of a batch was not stored."""

    index: int
    status: int
    title: str
    detail: str


class FeedbackAnswer(Struct):
    """The answer of /feedback."""

    accepted: int
    duplicates: int
    rejected: int
    seq: Annotated[int, Meta(description="the last of these records in the log")]
    errors: Annotated[list[RefusedEvent], Meta(description="as many as fit into 2 kB")]
    version: Annotated[int, Meta(description="of the weights, once learnt")] | UnsetType = UNSET


decode_rank = msgspec.json.Decoder(RankBody).decode
decode_binary_rank = msgspec.msgpack.Decoder(BinaryRankBody).decode
decode_envelope = msgspec.json.Decoder(Envelope).decode
decode_batch = msgspec.json.Decoder(RawEventBatch).decode
decode_event = msgspec.json.Decoder(AnyEvent).decode
decode_judged = msgspec.json.Decoder(Annotated[list[JudgedQuery], Meta(min_length=1)]).decode
encode = msgspec.json.Encoder().encode


def object_decoder(
    fields: Iterable[str], raw: Collection[str] = ()
) -> Callable[[bytes], dict[str, Any]]:
    """A decoder of JSON objects for pydantic: known fields of plain values, lists of texts, or raw.

    What else a body has is refused where it stands: 10 MB of nested lists would take 500 MB and
    more than a second as Python objects, before pydantic could refuse them.
    """
    names = tuple(fields)
    plain: Any = bool | int | float | str | list[str] | None | UnsetType
    types = [(name, Raw | UnsetType if name in raw else plain, UNSET) for name in names]
    struct = msgspec.defstruct("Fields", types, forbid_unknown_fields=True)
    decode = msgspec.json.Decoder(struct).decode

    def decode_object(body: bytes) -> dict[str, Any]:
        found = decode(body)
        values = {name: getattr(found, name) for name in names}
        return {name: value for name, value in values.items() if value is not UNSET}

    return decode_object


#: The fields of each object of a body by its place, for messages.
RANK_FIELDS = {
    "": ("documents", "ids", "features", *Asked.__struct_fields__),
    "documents": Document.__struct_fields__,
}
BINARY_RANK_FIELDS = {"": ("ids", "features", *Asked.__struct_fields__)}
BATCH_FIELDS = {"": RawEventBatch.__struct_fields__}
EVENT_FIELDS = {
    "": tuple(
        dict.fromkeys(
            field
            for event in (ClicksEvent, TripletsEvent, LabelsEvent)
            for field in ("type", *event.__struct_fields__)
        )
    ),
    "documents": Document.__struct_fields__,
    "type": ("clicks", "triplets", "labels"),
}
JUDGED_FIELDS = {
    "": JudgedQuery.__struct_fields__,
    "documents": JudgedDocument.__struct_fields__,
}


def components() -> dict[str, Any]:
    """The schemas of all bodies and answers, for OpenAPI."""
    documented = (
        RankBody, BinaryRankBody, RankAnswer, ClicksEvent, TripletsEvent, LabelsEvent, EventBatch,
        FeedbackAnswer, JudgedQuery,
    )  # fmt: skip
    template = "#/components/schemas/{name}"
    parts = msgspec.json.schema_components(documented, ref_template=template)[1]
    for part in parts.values():
        tag = part.get("properties", {}).get("type")
        if tag:  # an enum of one value, for which generated code has a class
            part["properties"]["type"] = {"type": "string", "const": tag["enum"][0]}
    return parts
