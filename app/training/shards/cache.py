"""The cache of who computes parts: decoded rows, and the pairs of their blocks at one w."""

from collections import Counter
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

from app.ranking.arrays import Floats
from app.ranking.batch.ordertree import OrderTree
from app.ranking.batch.ranksvm import Residuals
from app.training.shards.blocks import QueryRows


@dataclass(slots=True)
class Cache:
    """Rows and residuals of one training, in at most `most` bytes; nothing is evicted.

    Every pass reads all shards in turn, so evicting the oldest would lose each entry before its
    next use. A third of the bytes is for residuals, which take a twentieth of the rows. Threads
    share a cache, also those of several trainings: the keys tell what was read how, and what
    another training would keep is dropped.
    """

    most: int
    training: str = ""
    rows: dict[Any, tuple[QueryRows, ...]] = field(default_factory=dict)
    residuals: dict[Any, tuple[bytes, "Located"]] = field(default_factory=dict)
    sizes: Counter[Any] = field(default_factory=Counter)
    reserved: int = 0
    lock: Any = field(default_factory=Lock)

    def use_for(self, training: str) -> None:
        """Forget another training."""
        with self.lock:
            if training != self.training:
                self.training = training
                for one in (self.rows, self.residuals, self.sizes):
                    one.clear()

    def reserve(self, training: str, size: int) -> bool:
        """Reserve bytes for rows that are being read, if there is room; return whether."""
        with self.lock:
            fits = training == self.training and size <= self._room("rows")
            self.reserved += size if fits else 0
            return fits

    def release(self, size: int) -> None:
        """Give reserved bytes back."""
        with self.lock:
            self.reserved -= size

    def keep_rows(self, training: str, key: Any, rows: tuple[QueryRows, ...], size: int) -> None:
        """Keep rows whose bytes are reserved."""
        with self.lock:
            self.reserved -= size
            if training == self.training and key not in self.rows:
                self.rows[key] = rows
                self.sizes["rows"] += size

    def keep_residuals(self, training: str, key: Any, w: Floats, found: "Located") -> None:
        """Keep the residuals of a block at w instead of those at another w, if there is room."""
        with self.lock:
            if training != self.training:
                return
            if key in self.residuals:
                self.sizes["residuals"] -= self.residuals.pop(key)[1].nbytes
            if found.nbytes <= self._room("residuals"):
                self.residuals[key] = w.tobytes(), found
                self.sizes["residuals"] += found.nbytes

    def _room(self, kind: str) -> int:
        """Return the bytes that a new entry may have."""
        if kind == "residuals":
            return self.most // 3 - self.sizes[kind]
        return 2 * self.most // 3 - self.sizes[kind] - self.reserved


class GatheredRows:
    """The rows of a shard while it is read; the cache keeps them if the whole shard has room."""

    def __init__(self, cache: Cache, training: str) -> None:
        self._cache, self._training = cache, training
        self._rows: list[QueryRows] = []
        self._size, self._fits = 0, True

    def add(self, rows: QueryRows) -> None:
        """Gather one more block; without room, drop all."""
        self._fits = self._fits and self._cache.reserve(self._training, rows.nbytes)
        if self._fits:
            self._rows.append(rows)
            self._size += rows.nbytes
        else:
            self.drop()

    def keep(self, key: Any) -> None:
        """Hand the rows over to the cache."""
        if self._fits:
            self._cache.keep_rows(self._training, key, tuple(self._rows), self._size)
            self._size = 0

    def drop(self) -> None:
        """Forget the rows."""
        self._cache.release(self._size)
        self._rows, self._size = [], 0


class Located(NamedTuple):
    """The pairs of a block at one w."""

    tree: OrderTree
    residuals: Residuals

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        inside: Any = self.residuals.inside
        tree, own = self.tree, self.residuals
        arrays = (
            inside.leaves, inside.order, inside.came, inside.reach, tree.by_label, tree.starts,
            tree.label_starts, tree.first, tree.first_documents, own.l_above, own.l_below,
            own.above, own.below,
        )  # fmt: skip
        return sum(one.nbytes for one in arrays)
