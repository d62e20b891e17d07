"""Request and response schemas of the questions to a model, in msgspec."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from app.api.schemas import Document, Identity

Scored = Annotated[
    bool,
    Meta(
        description="the features are as scored: all features of the model, with `_order` if it "
        "has it, and not normalised; as in GET /models/{name}/impressions"
    ),
]


class CompareBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """The documents of a query, as for /rank, and two of them to compare."""

    documents: list[Document]
    first: Annotated[Identity, Meta(description="id of a document")]
    second: Annotated[Identity, Meta(description="id of another document")]
    scored: Scored = False


class WhatIfBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """The documents of a query, as for /rank, and the clicks of a user on their ranking."""

    documents: list[Document]
    clicks: Annotated[
        list[Identity], Meta(description="ids of the clicked documents, in click order")
    ]
    scored: Scored = False


class ScoredDocument(Struct):
    """A document and its score."""

    id: str
    score: Annotated[float, Meta(description="score by the model")]


class GapContribution(Struct):
    """The part of a feature in the gap of two scores."""

    feature: Annotated[str, Meta(description="name of the feature")]
    weight: Annotated[float, Meta(description="weight of the feature")]
    first: Annotated[float, Meta(description="value of the first document, as scored")]
    second: Annotated[float, Meta(description="value of the second document, as scored")]
    contribution: Annotated[float, Meta(description="`weight·(first - second)`")]


class GapRest(Struct):
    """The contributions that are not listed."""

    features: Annotated[int, Meta(description="number of features")]
    contribution: Annotated[float, Meta(description="sum of their contributions")]


class CompareAnswer(Struct):
    """Where the gap of two scores comes from."""

    model: str
    version: int
    first: Annotated[ScoredDocument, Meta(description="the first document")]
    second: Annotated[ScoredDocument, Meta(description="the second document")]
    gap: Annotated[float, Meta(description="score of the first minus score of the second")]
    stddev: Annotated[
        float | None,
        Meta(
            description="standard deviation `√(x·Σx)` of the gap, in the unit of `stddev` of "
            "/rank and of a model; null for SOLAR-I"
        ),
    ]
    stderr: Annotated[
        float | None,
        Meta(
            description="standard error `√(x·Σx/γ)` of the gap, in the unit of the gap; null for "
            "SOLAR-I"
        ),
    ]
    exchange_probability: Annotated[
        float | None,
        Meta(
            description="chance that exploration shows the document of the lower score above the "
            "other; null if the model does not explore"
        ),
    ]
    contributions: Annotated[
        list[GapContribution],
        Meta(description="the 200 largest contributions that are not 0, the largest first"),
    ]
    rest: Annotated[GapRest, Meta(description="the other contributions")]


class TriedPair(Struct):
    """A pair of documents that the feedback teaches."""

    preferred: Annotated[str, Meta(description="id of the preferred document")]
    other: Annotated[str, Meta(description="id of the other document")]
    weight: Annotated[float, Meta(description="weight of the pair, as learnt")]
    margin: Annotated[float, Meta(description="gap of their scores before the step")]
    outcome: Annotated[
        str,
        Meta(
            description="stepped: it changes the weights; passive: the margin is at least 1; "
            "refused: the gap is too large"
        ),
    ]


class WeightChange(Struct):
    """A weight before and after the feedback."""

    feature: Annotated[str, Meta(description="name of the feature")]
    before: Annotated[float, Meta(description="weight of the model")]
    after: Annotated[float, Meta(description="weight after the feedback")]
    stddev_before: Annotated[
        float | None, Meta(description="standard deviation of the weight; null for SOLAR-I")
    ]
    stddev_after: Annotated[
        float | None, Meta(description="the same after the feedback; null for SOLAR-I")
    ]


class WhatIfAnswer(Struct):
    """What the model would learn from clicks; nothing is stored."""

    model: str
    version: int
    shown: Annotated[
        list[str],
        Meta(description="the order in which the documents count as shown: by score, best first"),
    ]
    pairs: Annotated[list[TriedPair], Meta(description="the first 100 pairs, in learning order")]
    more_pairs: Annotated[int, Meta(description="number of pairs that are not listed")]
    weights: Annotated[
        list[WeightChange],
        Meta(description="the 200 weights that change most, the largest change first"),
    ]
    more_weights: Annotated[
        int, Meta(description="number of weights that change and are not listed")
    ]
    order_before: Annotated[list[str], Meta(description="document ids by score, best first")]
    order_after: Annotated[list[str], Meta(description="the same with the weights after")]


class ComparedVersion(Struct):
    """A version of a model."""

    version: Annotated[int, Meta(description="seq of the last record in the version")]
    name: Annotated[
        str | None, Meta(description="its name, if it was asked for by name; else null")
    ]


class WeightDifference(Struct):
    """A weight in two versions."""

    feature: Annotated[str, Meta(description="name of the feature")]
    a: Annotated[float, Meta(description="weight in version a")]
    b: Annotated[float, Meta(description="weight in version b")]
    change: Annotated[float, Meta(description="`b - a`")]


class DifferenceRest(Struct):
    """The differences that are not listed."""

    features: Annotated[int, Meta(description="number of features whose weights differ")]
    largest_change: Annotated[float, Meta(description="the largest absolute change among them")]


class ReorderedList(Struct):
    """A recent list in the order of two versions, among the documents shown."""

    request: Annotated[str, Meta(description="id of the request")]
    documents: Annotated[int, Meta(description="number of documents shown")]
    moved: Annotated[int, Meta(description="number of documents that change their position")]
    a: Annotated[list[str], Meta(description="the first ten ids in the order of version a")]
    b: Annotated[list[str], Meta(description="the first ten ids in the order of version b")]


class VersionDiff(Struct):
    """The weights of two versions, and the recent lists that they order differently."""

    a: Annotated[ComparedVersion, Meta(description="the version of the first part of the path")]
    b: Annotated[ComparedVersion, Meta(description="the version of the second part of the path")]
    weights: Annotated[
        list[WeightDifference],
        Meta(description="the 200 weights that differ most, the largest change first"),
    ]
    rest: Annotated[DifferenceRest, Meta(description="the other weights that differ")]
    lists: Annotated[
        list[ReorderedList] | None,
        Meta(description="up to 20 recent lists, newest first; null for a key without `admin`"),
    ]


class ShownDocument(Struct):
    """A document of a recent list."""

    id: str
    features: Annotated[list[float], Meta(description="values as scored, in order of `features`")]


class RecentImpression(Struct):
    """A recent list, as it was shown."""

    request: Annotated[str, Meta(description="id of the request")]
    time: Annotated[
        int | None,
        Meta(description="time of the request in ms since 1970; null for your own request ids"),
    ]
    documents: Annotated[
        list[ShownDocument],
        Meta(description="the first 50 documents in the order shown; fewer of wide models"),
    ]
    documents_shown: Annotated[int, Meta(description="number of documents shown")]
    submitted: Annotated[
        list[int], Meta(description="submitted position of each listed document, from 0")
    ]
    clicked: Annotated[
        list[int], Meta(description="positions of the clicks so far, from 0, in click order")
    ]
    explored: Annotated[bool, Meta(description="the ranking was randomised")]
    duel: Annotated[bool, Meta(description="true: a list of a duel; else absent")] | UnsetType = (
        UNSET
    )


class RecentImpressions(Struct):
    """Recent lists that are still remembered, newest first."""

    features: Annotated[
        list[str], Meta(description="names of the features, with `_order` if the model has it")
    ]
    impressions: Annotated[
        list[RecentImpression],
        Meta(description="recent lists, newest first; fewer than `limit` if they are large"),
    ]


_DOCUMENT = Document.__struct_fields__
COMPARE_FIELDS = {"": CompareBody.__struct_fields__, "documents": _DOCUMENT}
WHAT_IF_FIELDS = {"": WhatIfBody.__struct_fields__, "documents": _DOCUMENT}
decode_compare = msgspec.json.Decoder(CompareBody).decode
decode_what_if = msgspec.json.Decoder(WhatIfBody).decode


def question_components() -> dict[str, Any]:
    """Return the schemas of all bodies and answers, for OpenAPI."""
    documented = (
        CompareBody, WhatIfBody, CompareAnswer, WhatIfAnswer, VersionDiff, RecentImpressions,
    )  # fmt: skip
    template = "#/components/schemas/{name}"
    return msgspec.json.schema_components(documented, ref_template=template)[1]
