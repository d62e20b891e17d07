"""Shards of judged queries for tests, and the same rows in one matrix."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from app.domain.model_config import ModelConfig
from app.evaluation.letor import JudgedData
from app.ranking.batch.judgements import Judgements
from app.ranking.online import LabelledQuery
from app.training.shards import training as sharded
from app.training.shards.engines import Engine, SerialEngine
from app.training.shards.files import located
from app.training.shards.training import CheckedShards
from app.training.targets.file import new_config

N = 4


def drawn(shards: int = 3, queries: int = 12, seed: int = 0) -> list[dict[str, Any]]:
    """Columns of shards: query ids, labels and rows."""
    rng = np.random.default_rng(seed)
    true, found = rng.normal(size=N), []
    for shard in range(shards):
        sizes = rng.integers(2, 9, size=queries)
        rows = rng.random((int(sizes.sum()), N)).astype(np.float32)
        labels = np.clip(np.round(rows @ true + rng.normal(size=len(rows))), 0, 4)
        names = np.repeat([f"{shard}-{query}" for query in range(queries)], sizes)
        found.append({"qid": names.tolist(), "label": labels.tolist(), "features": rows})
    return found


def write_parquet(path: Path, columns: dict[str, Any], **changed: Any) -> Path:
    """Write a shard with a list of features."""
    given = {**columns, "features": list(columns["features"]), **changed}
    parquet.write_table(pa.table({k: v for k, v in given.items() if v is not None}), path)
    return path


def write_columns(path: Path, columns: dict[str, Any], names: Sequence[str]) -> Path:
    """Write a shard with one column for a feature."""
    features = dict(zip(names, columns["features"].T, strict=True))
    parquet.write_table(
        pa.table({"qid": columns["qid"], "label": columns["label"], **features}), path
    )
    return path


def write_text(path: Path, columns: dict[str, Any]) -> Path:
    """Write a shard as SVMlight text."""
    fields = (columns[key] for key in ("qid", "label", "features"))
    lines = [
        f"{label:g} qid:{name} " + " ".join(f"{k}:{x!r}" for k, x in enumerate(map(float, row), 1))
        for name, label, row in zip(*fields, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def written(folder: Path, shards: Sequence[dict[str, Any]]) -> list[str]:
    """Write all shards as parquet; return their paths."""
    return [str(write_parquet(folder / f"{at}.parquet", one)) for at, one in enumerate(shards)]


def in_one(shards: Sequence[dict[str, Any]]) -> Judgements:
    """The rows of all shards in one matrix."""
    names = np.concatenate([one["qid"] for one in shards])
    new = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
    rows = np.concatenate([one["features"] for one in shards]).astype(np.float64)
    labels = np.concatenate([one["label"] for one in shards]).astype(np.float64)
    return Judgements(rows, labels, np.append(new, len(labels)))


def as_queries(shards: Sequence[dict[str, Any]]) -> JudgedData:
    """The rows of all shards as judged queries."""
    one = in_one(shards)
    queries = [
        LabelledQuery(one.labels[a:b], one.X[a:b].astype(np.float32))
        for a, b in pairwise(one.starts)
    ]
    return JudgedData(N, queries)


def checked(
    urls: Sequence[str],
    engine: Engine | None = None,
    bound: float = 1e4,
    config: ModelConfig | None = None,
) -> CheckedShards:
    """Check shards for a model; None: a new one."""
    engine = SerialEngine() if engine is None else engine
    shards = sharded.find_shards(engine, located(urls))
    columns = sharded.read_columns(engine, shards)
    config = new_config(columns.n, None) if config is None else config
    return sharded.check_shards(engine, shards, columns, config, bound)
