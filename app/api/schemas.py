"""Request and response schemas of /rank and /feedback, in msgspec."""

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

Name = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$", description="the name of a model")]
Identity = Annotated[str, Meta(min_length=1, description="without control characters")]
Source = Annotated[
    str,
    Meta(max_length=64, description="the sender; stored as KEY/source, KEY is the API key's name"),
]
#: RFC 3339 with an offset, or milliseconds since 1970.
EventTime: TypeAlias = Annotated[datetime, Meta(tz=True)] | Annotated[int, Meta(ge=0, le=1 << 53)]
Count = Annotated[int, Meta(ge=1)]
Sequence = Annotated[int, Meta(ge=0)]
VersionName = Annotated[str, Meta(min_length=1, max_length=64)]


FeaturesByName = Annotated[dict[str, float], Meta(title="FeaturesByName")]
Features: TypeAlias = list[float] | FeaturesByName


class Document(Struct, forbid_unknown_fields=True):
    """A document: its features as a list in the model's order, or by name (absent is 0)."""

    id: Identity
    features: Features


class RankFields(Struct, forbid_unknown_fields=True, kw_only=True):
    """The fields that all /rank bodies share."""

    model: Name = "default"
    query_id: Annotated[str, Meta(description="your id of the query; returned unchanged")] = ""
    request_id: Annotated[
        Identity | None, Meta(description="your id of the request; null: a generated id")
    ] = None
    top_k: Annotated[Count | None, Meta(description="number of documents to return; null: all")] = (
        None
    )
    explore: Annotated[
        bool | None, Meta(description="randomise the ranking; null: the model's setting")
    ] = None
    pinned: Annotated[
        list[Identity], Meta(description="documents that keep their submitted positions")
    ] = []
    explain: Annotated[bool, Meta(description="add the contribution of each feature")] = False
    log: Annotated[bool, Meta(description="log the impression for feedback")] = True
    min_seq: Annotated[
        Sequence | None, Meta(description="wait until the weights include this record")
    ] = None
    viewer: Annotated[
        str,
        Meta(max_length=256, description="whose token it is: a beacon must state the same"),
    ] = ""
    version: Annotated[
        Sequence | VersionName | None,
        Meta(
            description="rank by a kept version, by its number or name: plain order, not logged; "
            "needs the scope admin"
        ),
    ] = None


class RankBody(RankFields, forbid_unknown_fields=True, kw_only=True):
    """Documents to rank: as objects, or as columns (`ids` and `features`)."""

    documents: list[Document] | UnsetType = UNSET
    ids: list[Identity] | UnsetType = UNSET
    features: list[list[float]] | UnsetType = UNSET


class BinaryRankBody(RankFields, forbid_unknown_fields=True, kw_only=True):
    """Documents to rank, in msgpack: `features` holds rows of little-endian float32."""

    ids: list[Identity]
    features: bytes


class BinaryRows(Struct):
    """The rows of a body in msgpack, not decoded."""

    features: Raw = Raw(b"")


AnyRankBody: TypeAlias = RankBody | BinaryRankBody


class EventFields(Struct, tag_field="type", forbid_unknown_fields=True, kw_only=True):
    """The fields that all events share."""

    event_id: Annotated[Identity, Meta(description="your id of the event; repeating it is safe")]
    model: Name | UnsetType = UNSET
    query_id: str = ""
    source: Source | UnsetType = UNSET
    time: (
        Annotated[
            EventTime,
            Meta(
                description="when it happened: RFC 3339, or ms since 1970; an event from before "
                "the deduplication window is refused"
            ),
        ]
        | UnsetType
    ) = UNSET


Gain = Annotated[float, Meta(ge=0, le=10)]
Action = Annotated[str, Meta(min_length=1, max_length=64)]
#: A number, or the name of an action of the model.
GainsById = Annotated[dict[str, Gain | Action], Meta(title="GainsById")]


class ClicksEvent(EventFields, tag="clicks", kw_only=True):
    """The clicked documents of a ranking, in click order; may be empty."""

    request_id: Identity
    clicked: list[Identity]
    gains: (
        Annotated[GainsById, Meta(description="of clicked documents; 1 if omitted")] | UnsetType
    ) = UNSET
    examined: (
        Annotated[int, Meta(ge=0, description="how many documents from the top a user has seen")]
        | UnsetType
    ) = UNSET


class Triplet(Struct, array_like=True, forbid_unknown_fields=True):
    """`[preferred, other]` or `[preferred, other, weight]`, by document id."""

    preferred: Identity
    other: Identity
    weight: float = 1.0


class TripletsEvent(EventFields, tag="triplets", kw_only=True):
    """Preferences between documents of a ranking, or of `documents` in the event."""

    triplets: list[Triplet]
    request_id: Identity | UnsetType = UNSET
    documents: list[Document] | UnsetType = UNSET


class LabelsEvent(EventFields, tag="labels", kw_only=True):
    """Relevance labels of documents, 0 to 30; a document without a label has 0."""

    labels: dict[str, Annotated[float, Meta(ge=0, le=30)]]
    request_id: Identity | UnsetType = UNSET
    documents: list[Document] | UnsetType = UNSET


AnyEvent: TypeAlias = ClicksEvent | TripletsEvent | LabelsEvent


class Envelope(Struct):
    """The field that distinguishes a batch from a single event."""

    events: Raw | UnsetType = UNSET


class RawEventBatch(Struct, forbid_unknown_fields=True):
    """A batch of events of one model; each event is decoded and refused separately."""

    events: list[Raw]
    model: Name | UnsetType = UNSET


class EventBatch(Struct, forbid_unknown_fields=True):
    """A batch of events of one model; `model` applies to all events."""

    events: list[AnyEvent]
    model: Name | UnsetType = UNSET


class BeaconEvent(Struct, kw_only=True):
    """Clicks on the list of a token; fields that a newer script may send are ignored."""

    token: Annotated[str, Meta(max_length=8192, description="`token` of the answer of /rank")]
    clicked: Annotated[
        list[Identity], Meta(max_length=1000, description="the clicked documents; may be empty")
    ] = []
    gains: (
        Annotated[GainsById, Meta(description="of clicked documents; 1 if omitted")] | UnsetType
    ) = UNSET
    examined: (
        Annotated[int, Meta(ge=0, description="how many documents from the top a user has seen")]
        | UnsetType
    ) = UNSET
    viewer: Annotated[str, Meta(max_length=256, description="`viewer` of the request to /rank")] = (
        ""
    )


class RawBeacons(Struct):
    """Events of a web page; each is decoded separately."""

    events: list[Raw]


class Beacons(Struct):
    """Events of a web page."""

    events: Annotated[
        list[BeaconEvent], Meta(max_length=100, description="each is taken or refused separately")
    ]


class JudgedDocument(Struct, forbid_unknown_fields=True, kw_only=True):
    """A document and its relevance label, 0 to 30."""

    label: Annotated[float, Meta(ge=0, le=30)]
    features: Features
    id: str = ""


class JudgedQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The labelled documents of a query."""

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

    request_id: Annotated[str, Meta(description="send it with feedback on this ranking")]
    query_id: str
    model: str
    version: Annotated[int, Meta(description="seq of the last record in the weights")]
    explored: Annotated[bool, Meta(description="the ranking was randomised")]
    logged: Annotated[bool, Meta(description="the impression was logged; it accepts feedback")]
    degraded: Annotated[
        bool, Meta(description="the store is unreachable; the weights in memory were used")
    ]
    documents: list[RankedDocument]
    duel: (
        Annotated[bool, Meta(description="true: both sides of a duel are interleaved; else absent")]
        | UnsetType
    ) = UNSET
    token: (
        Annotated[str, Meta(description="for /beacon: names this list, signed by the service")]
        | UnsetType
    ) = UNSET


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
    seq: Annotated[int, Meta(description="the highest seq of these events in the log")]
    errors: Annotated[list[RefusedEvent], Meta(description="the first errors, up to 2 kB")]
    version: (
        Annotated[int, Meta(description="version of the weights, if learnt in time")] | UnsetType
    ) = UNSET


decode_rank = msgspec.json.Decoder(RankBody).decode
decode_binary_rank = msgspec.msgpack.Decoder(BinaryRankBody).decode
decode_binary_rows = msgspec.msgpack.Decoder(BinaryRows).decode
decode_envelope = msgspec.json.Decoder(Envelope).decode
decode_batch = msgspec.json.Decoder(RawEventBatch).decode
decode_event = msgspec.json.Decoder(AnyEvent).decode
decode_beacon = msgspec.json.Decoder(RawBeacons).decode
decode_beacon_event = msgspec.json.Decoder(BeaconEvent).decode
decode_judged = msgspec.json.Decoder(Annotated[list[JudgedQuery], Meta(min_length=1)]).decode
encode = msgspec.json.Encoder().encode


def object_decoder(
    fields: Iterable[str], raw: Collection[str] = ()
) -> Callable[[bytes], dict[str, Any]]:
    """Build a decoder of JSON objects for pydantic: known fields, plain values, string lists, raw.

    `splines`, `grid` and `actions` have values by name, and only `challenger` may be an object.
    Any other value is refused during decoding. Decoding 10 MB of nested lists for pydantic to
    refuse would take 500 MB and more than a second.
    """
    names = tuple(fields)
    plain: Any = bool | int | float | str | list[str] | None | UnsetType
    others: dict[str, Any] = {
        "splines": dict[str, list[float]] | UnsetType,
        "grid": dict[str, list[bool | int | float | str | None]] | UnsetType,
        "challenger": str | dict[str, bool | int | float | str | None] | UnsetType,
        "actions": dict[str, float] | UnsetType,
    }
    others |= dict.fromkeys(raw, Raw | UnsetType)
    types = [(name, others.get(name, plain), UNSET) for name in names]
    struct = msgspec.defstruct("Fields", types, forbid_unknown_fields=True)
    decode = msgspec.json.Decoder(struct).decode

    def decode_object(body: bytes) -> dict[str, Any]:
        found = decode(body)
        values = {name: getattr(found, name) for name in names}
        return {name: value for name, value in values.items() if value is not UNSET}

    return decode_object


#: Field names by location in a body, for messages.
RANK_FIELDS = {
    "": ("documents", "ids", "features", *RankFields.__struct_fields__),
    "documents": Document.__struct_fields__,
}
BINARY_RANK_FIELDS = {"": ("ids", "features", *RankFields.__struct_fields__)}
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
    """Return the schemas of all bodies and answers, for OpenAPI."""
    documented = (
        RankBody, BinaryRankBody, RankAnswer, ClicksEvent, TripletsEvent, LabelsEvent, EventBatch,
        FeedbackAnswer, JudgedQuery, Beacons,
    )  # fmt: skip
    template = "#/components/schemas/{name}"
    parts = msgspec.json.schema_components(documented, ref_template=template)[1]
    for part in parts.values():
        tag = part.get("properties", {}).get("type")
        if tag:  # msgspec writes an enum of one value, for which code generators make a class
            part["properties"]["type"] = {"type": "string", "const": tag["enum"][0]}
    return parts
