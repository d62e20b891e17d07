"""The cache of who computes parts: decoded rows, and the pairs of their blocks at one w."""

from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

from app.ranking.arrays import Floats
from app.ranking.batch.ordertree import OrderTree
from app.ranking.batch.ranksvm import Residuals
from app.training.shards.blocks import QueryRows
from app.training.shards.files import Shard


@dataclass(slots=True)
class Cache:
    """Rows and residuals of one training, in at most `most` bytes; nothing is evicted.

    Every pass reads all shards in turn, so evicting the oldest would lose each entry before its
    next use. A third of the bytes is for residuals, which take a twentieth of the rows.
    """

    most: int
    training: str = ""
    rows: dict[Shard, tuple[QueryRows, ...]] = field(default_factory=dict)
    residuals: dict[Any, tuple[bytes, "Located"]] = field(default_factory=dict)
    sizes: dict[Any, int] = field(default_factory=dict)
    lock: Any = field(default_factory=Lock)

    def use_for(self, training: str) -> None:
        """Forget another training."""
        with self.lock:
            if training != self.training:
                self.training = training
                for one in (self.rows, self.residuals, self.sizes):
                    one.clear()

    def keep_rows(self, shard: Shard, rows: tuple[QueryRows, ...], size: int) -> None:
        """Keep the rows of a shard if there is room."""
        with self.lock:
            if size <= self.room("rows", shard):
                self.rows[shard], self.sizes["rows", shard] = rows, size

    def keep_residuals(self, key: Any, w: Floats, found: "Located") -> None:
        """Keep the residuals of a block at w instead of those at another w, if there is room."""
        with self.lock:
            self.residuals.pop(key, None)
            self.sizes.pop(("residuals", key), None)
            if found.nbytes <= self.room("residuals", key):
                self.residuals[key] = w.tobytes(), found
                self.sizes["residuals", key] = found.nbytes

    def room(self, kind: str, key: Any) -> int:
        """Return the bytes that an entry may have."""
        most = self.most // 3 if kind == "residuals" else 2 * self.most // 3
        return most - sum(size for (of, at), size in self.sizes.items() if of == kind and at != key)


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
