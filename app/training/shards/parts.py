"""What is computed for one shard: pure functions of the shard and the weights.

A function reads its shard block by block, and adds up what the blocks give, in their order. The
cache only spares reading and sorting: without it, or in another process, the bits are the same.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.domain import candidates
from app.errors import BadData
from app.ranking.arrays import Floats, Integers
from app.ranking.batch import partial_sums, warmstart
from app.ranking.batch.judgements import Judgements, is_sparse
from app.ranking.batch.ordertree import OrderTree
from app.ranking.batch.partial_sums import LossSum, Share
from app.ranking.batch.path import Measure
from app.ranking.limits import LARGEST_LABEL
from app.training.shards import files, parquet, text
from app.training.shards.blocks import (
    BLOCK_BYTES,
    QueryRows,
    in_blocks,
    normalized_rows,
    rows_with_ramps,
)
from app.training.shards.cache import Cache, GatheredRows, Located
from app.training.shards.files import Location, Shard

Hashes = NDArray[np.uint64]


class FeatureColumns(NamedTuple):
    """The features of a shard: their number, and their names if each has a column."""

    n: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """How the rows of all shards of a training are read; `training` tells trainings apart.

    `ramps` are the columns and knots of the model's splines.
    """

    training: str
    n: int
    names: tuple[str, ...] = ()
    normalization: str = "none"
    bound: float = np.inf
    ramps: tuple[tuple[int, float], ...] = ()

    @property
    def width(self) -> int:
        """The number of weights: features and ramps."""
        return self.n + len(self.ramps)

    @property
    def block_bytes(self) -> int:
        """Most bytes of a block without its ramps, so that it has `BLOCK_BYTES` with them."""
        return BLOCK_BYTES * self.n // self.width


@dataclass(frozen=True, slots=True)
class ShardPart:
    """A shard, and the bits of the queries that count; empty: all."""

    shard: Shard
    reading: Reading
    kept: bytes = b""


@dataclass(frozen=True, slots=True)
class Survey:
    """What the training must know about a shard before it starts."""

    ordering: NDArray[np.bool_]
    hashes: Hashes
    sizes: Integers


class Block(NamedTuple):
    """The rows of a part that one step computes with; `at` is the number of the block."""

    at: int
    rows: QueryRows
    X: Any

    @property
    def judged(self) -> Judgements:
        """The rows as judgements."""
        return Judgements(self.X, self.rows.labels, self.rows.starts)

    def tree(self) -> OrderTree:
        """Build the order tree."""
        return OrderTree.of(self.rows.labels, self.rows.starts)


# ---- before the training ----


def find_files(_: Cache, location: Location) -> list[Shard]:
    """Find the files of a URL."""
    return files.expand(location)


def columns(_: Cache, shard: Shard) -> FeatureColumns:
    """Read the number and the names of the features of a shard."""
    with files.opened(shard) as file:
        if shard.is_parquet:
            return FeatureColumns(*parquet.columns_of(file, shard.name))
        return FeatureColumns(text.count_features(file, shard.name), ())


def survey(cache: Cache, part: ShardPart) -> Survey:
    """Check every row of a shard; return which queries have two labels, and hashes of their ids."""
    cache.use_for(part.reading.training)
    ordering, hashes, sizes, documents = [], [], [], 0
    for rows in _read(cache, part):
        _check(rows, part, documents)
        ordering.append(rows.ordering())
        hashes += [_hash(name) for name in rows.names]
        sizes.append(rows.sizes)
        documents += len(rows)
    if not documents:
        raise BadData(f"{part.shard.name}: expected rows, got none")
    found = Survey(np.concatenate(ordering), np.array(hashes, np.uint64), np.concatenate(sizes))
    counted = Counter(query_names(cache, part, duplicated(found.hashes)))
    for query, times in counted.items():
        if times > 1:
            raise BadData(
                f"{part.shard.name}: expected contiguous rows for each query, got rows of query "
                f"{query[:64]!r} in {times} places"
            )
    return found


def query_names(cache: Cache, part: ShardPart, hashes: Hashes) -> list[str]:
    """Return the ids of the queries with these hashes that a shard has, in its order."""
    cache.use_for(part.reading.training)
    wanted = set(hashes.tolist())
    read = _read(cache, part) if wanted else ()
    return [name for rows in read for name in rows.names if _hash(name) in wanted]


def duplicated(hashes: Hashes) -> Hashes:
    """Return the values that occur more than once.

    >>> duplicated(np.array([3, 1, 3], np.uint64))
    array([3], dtype=uint64)
    """
    values, counts = np.unique(hashes, return_counts=True)
    found: Hashes = values[counts > 1]
    return found


def _hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def _check(rows: QueryRows, part: ShardPart, before: int) -> None:
    """Raise BadData for labels and features that no training accepts; `before` counts rows."""
    name, labels = part.shard.name, rows.labels
    if wrong := _first(~((labels >= 0.0) & (labels <= LARGEST_LABEL)), before):
        raise BadData(f"{name}: row {wrong}: expected a label from 0 to {LARGEST_LABEL:g}")
    values = rows.X.data if is_sparse(rows.X) else rows.X
    finite = np.isfinite(values)
    if not finite.all():
        at = "" if is_sparse(rows.X) else f"row {_first(~finite.all(axis=1), before)}: "
        raise BadData(f"{name}: {at}expected finite features in float32, got NaN or infinity")
    bound = part.reading.bound
    if part.reading.normalization == "none" and not candidates.features_within(values, bound):
        raise BadData(
            f"{name}: expected features within ±{bound:g} for a model without normalization; "
            "scale them, or use a model with query-minmax"
        )


def _first(wrong: NDArray[np.bool_], before: int) -> int:
    """Return the number of the first wrong row, from 1; 0 if there is none."""
    return before + int(np.argmax(wrong)) + 1 if wrong.any() else 0


# ---- sums ----


def part_loss(cache: Cache, part: ShardPart, w: Floats) -> LossSum:
    """Return value and gradient of the loss."""
    return partial_sums.added_losses(_losses(cache, part, w), part.reading.width)


def _losses(cache: Cache, part: ShardPart, w: Floats) -> Iterator[LossSum]:
    for block in blocks(cache, part):
        tree = block.tree()
        residuals, scores = partial_sums.residuals_at(block.X, tree, w)
        cache.keep_residuals(part.reading.training, (part, block.at), w, Located(tree, residuals))
        yield partial_sums.loss_sum(block.X, residuals, scores)


def part_product(cache: Cache, part: ShardPart, w: Floats, v: Floats) -> Floats:
    """Return the product of the Hessian of the loss at w with v."""
    products = (
        partial_sums.product_sum(block.X, there.residuals, there.tree, v)
        for block in blocks(cache, part)
        for there in [_located(cache, part, block, w)]
    )
    return partial_sums.added(products, part.reading.width)


def part_diagonal(cache: Cache, part: ShardPart, w: Floats) -> Floats:
    """Return about the diagonal of the Hessian of the loss at w, for sparse rows."""
    diagonals = (
        partial_sums.diagonal_sum(block.X, there.residuals, there.tree)
        for block in blocks(cache, part)
        for there in [_located(cache, part, block, w)]
    )
    return partial_sums.added(diagonals, part.reading.width)


def part_quality(cache: Cache, part: ShardPart, w: Floats, by: Measure) -> Share:
    """Return a measure of w."""
    shares = (partial_sums.quality_share(one.judged, w, by) for one in blocks(cache, part))
    return partial_sums.added_shares(shares)


def part_scatter(cache: Cache, part: ShardPart, w: Floats) -> Floats:
    """Return the scatter of the pairs inside at w, for a full Σ."""
    n = part.reading.width
    found = (warmstart.scatter(one.judged, w) for one in blocks(cache, part))
    return partial_sums.added(found, n, n)


def part_spreads(cache: Cache, part: ShardPart, w: Floats) -> Floats:
    """Return the diagonal of the scatter, for a diagonal Σ."""
    found = (warmstart.spreads(one.judged, w) for one in blocks(cache, part))
    return partial_sums.added(found, part.reading.width)


def _located(cache: Cache, part: ShardPart, block: Block, w: Floats) -> Located:
    """Return the pairs of a block at w, from the cache or computed."""
    at, there = cache.residuals.get((part, block.at), (b"", None))
    if there is not None and at == w.tobytes():
        return there
    tree = block.tree()
    found = Located(tree, partial_sums.residuals_at(block.X, tree, w)[0])
    cache.keep_residuals(part.reading.training, (part, block.at), w, found)
    return found


# ---- rows ----


def blocks(cache: Cache, part: ShardPart) -> Iterator[Block]:
    """Yield the rows that count as the model has them, in float64; no block without any."""
    cache.use_for(part.reading.training)
    first = 0
    kept = np.unpackbits(np.frombuffer(part.kept, np.uint8)).astype(np.bool_)
    for at, rows in enumerate(_read(cache, part)):
        last = first + len(rows.sizes)
        some = rows.some(kept[first:last]) if part.kept else rows
        first = last
        if len(some):
            scaled = normalized_rows(some, part.reading.normalization)
            wider = rows_with_ramps(scaled, part.reading.ramps)
            yield Block(at, wider, wider.X.astype(np.float64))


def _read(cache: Cache, part: ShardPart) -> Iterator[QueryRows]:
    """Yield the rows of a shard in blocks, and keep them if the whole shard has room."""
    key = part.shard, part.reading
    if (known := cache.rows.get(key)) is not None:
        files.check_stamp(part.shard)
        yield from known
        return
    gathered = GatheredRows(cache, part.reading.training)
    try:
        with files.opened(part.shard) as file:
            for rows in in_blocks(_pieces(file, part), part.reading.block_bytes):
                gathered.add(rows)
                yield rows
        gathered.keep(key)
    finally:
        gathered.drop()


def _pieces(file: Any, part: ShardPart) -> Iterator[QueryRows]:
    reading, name = part.reading, part.shard.name
    if part.shard.is_parquet:
        return parquet.parquet_pieces(file, name, reading.n, reading.names)
    return text.text_pieces(file, name, reading.n)
