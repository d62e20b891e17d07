"""Response schemas of the paths that the console reads: the history of a model, and the status."""

from typing import Annotated

from pydantic import BaseModel, Field

_Points = list[list[float]]


class HourlyWeights(BaseModel):
    """The weights with the largest effect at a time."""

    time: Annotated[int, Field(description="ms since 1970")]
    seq: Annotated[int, Field(description="seq of the last record in these weights")]
    weights: Annotated[
        dict[str, float], Field(description="at most 200 weights by feature, as float32")
    ]


class ModelHistory(BaseModel):
    """The history of a model. The sums of a point are cumulative, since the measures began.

    A mean over a time is the difference of two sums divided by the difference of `queries`.
    """

    name: str
    version: Annotated[int, Field(description="seq of the last record in the served weights")]
    with_errors: Annotated[
        bool, Field(description="whether the sums of squares count, for standard errors")
    ]
    columns: Annotated[
        list[str], Field(description="names of the sums in a point, after its time and its seq")
    ]
    hour: Annotated[
        _Points,
        Field(description="points by 10 seconds, oldest first: time in ms since 1970, seq, sums"),
    ]
    day: Annotated[_Points, Field(description="points by 10 minutes, oldest first")]
    now: Annotated[list[float], Field(description="the served state, as one more point")]
    weights: Annotated[
        list[HourlyWeights],
        Field(description="weights with the largest effect by the hour, oldest first"),
    ]
