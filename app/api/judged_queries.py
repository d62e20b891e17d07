"""Judged queries in JSON as the data of a training job."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from pydantic import ValidationError

from app.api import decoding, schemas
from app.api.admin_schemas import ShardsBody, TrainingOptions
from app.api.errors import invalid, undecodable
from app.domain import codec
from app.domain.model_config import ModelConfig
from app.errors import InvalidInput
from app.training.options import Training

_OPTIONS = (*TrainingOptions.model_fields, "queries", "shards")
_FIELDS = {"": _OPTIONS}
_decode_warm_start = schemas.object_decoder(_OPTIONS, raw=("queries",))


def judged_blob(queries: Sequence[schemas.JudgedQuery], config: ModelConfig) -> bytes:
    """Convert judged queries to a blob of rows, one column for each feature of the model."""
    sizes = [len(query.documents) for query in queries]
    rows = np.zeros((sum(sizes), len(config.given)), np.float32)
    starts = np.cumsum([0, *sizes])
    for at, query in enumerate(queries):
        try:
            features = [one.features for one in query.documents]
            found = decoding.feature_rows(features, config, decoding.MAX_FLOAT32)
            rows[starts[at] : starts[at + 1]] = found
        except InvalidInput as error:
            raise InvalidInput(f"queries[{at}].{error}") from None
    labels = np.array([one.label for query in queries for one in query.documents])
    arrays = {"documents": rows, "labels": labels, "starts": starts.astype(np.int64)}
    return codec.dump_blob("judged", {}, arrays)


def shards_blob(urls: Sequence[str]) -> bytes:
    """Convert the URLs of shards to a blob, the data of their job."""
    return codec.dump_blob("shards", {"shards": list(urls)}, {})


class WarmStart(NamedTuple):
    """The options of a job, and its queries or the URLs of its shards."""

    training: Training
    queries: list[schemas.JudgedQuery]
    shards: list[str]


def read_warm_start(body: bytes, config: ModelConfig) -> WarmStart:
    """Decode the options with pydantic, and the queries, which are large, with msgspec."""
    try:
        within = ""
        given = _decode_warm_start(body)
        queries = given.pop("queries", None)
        if "shards" in given and queries is None:
            named = ShardsBody.model_validate(given)
            return WarmStart(named.training(config), [], named.shards)
        options = TrainingOptions.model_validate(given)
        if queries is None:
            raise InvalidInput("queries: required")
        within = "queries"
        judged = schemas.decode_judged(queries)
    except ValidationError as error:
        raise invalid(error.errors(include_url=False), ()) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise undecodable(error, schemas.JUDGED_FIELDS if within else _FIELDS, within) from None
    return WarmStart(options.training(config), judged, [])
