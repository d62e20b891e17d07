"""The loss bounds of a model over its kept log, in the pass that verifies the log.

The bound holds for every comparator u (`ranking/loss_bound.py`). Two are computed: the final
weights, which are known before the pass, and batch RankSVM on the learnt pairs. Its pairs are kept
in memory with their documents, up to MOST_PAIR_BYTES; of a longer log its bound covers the first
pairs.
"""

from dataclasses import dataclass
from typing import NamedTuple

from app.domain.counting import AT
from app.domain.model import Model, ModelState
from app.domain.model_config import ModelConfig
from app.ranking.arrays import Floats
from app.ranking.batch.comparator import best_comparator
from app.ranking.loss_bound import LossBound, SteppedPairs, exceeds
from app.ranking.solar import GapBatch, Steps

#: Bytes of documents and pairs for RankSVM: about 100,000 lists of 10 documents of 50 features.
MOST_PAIR_BYTES = 256_000_000
#: Documents of a block: a product with a block of 46 features takes 0.2 ms.
BLOCK_ROWS = 4096
#: Names of the loss bound and of its consequence for NDCG and MAP.
THEOREMS = {
    ("solar-i", "full"): ("Theorem 1", "Theorem 2"),
    ("solar-ii", "full"): ("Theorem 3 (corrected)", "Theorem 4 (corrected)"),
    ("solar-ii", "diagonal"): ("Theorem 3 (diagonal)", "Theorem 4 (diagonal)"),
}


class BoundRow(NamedTuple):
    """A bound by one comparator."""

    comparator: str
    pairs: int
    loss: float
    bound: float

    @property
    def ratio(self) -> float:
        """The loss as a share of the bound."""
        return self.loss / self.bound if self.bound else 0.0


def kind_of(config: ModelConfig) -> tuple[str, str]:
    """Return the algorithm and its covariance; SOLAR-I has none and counts as full."""
    return config.algorithm, "full" if config.algorithm == "solar-i" else config.covariance


@dataclass(slots=True)
class KeptPairs:
    """The first learnt pairs of a log, in blocks, and the bound over them once there are more."""

    blocks: list[SteppedPairs]
    open: list[SteppedPairs]
    size: int = 0
    covered: LossBound | None = None

    def add(self, pairs: SteppedPairs, bound: LossBound, most: int) -> None:
        """Keep pairs, unless the memory is used; `bound` includes them."""
        if self.covered is not None:
            return
        self.open.append(pairs)
        self.size += pairs.nbytes
        if sum(len(one.documents) for one in self.open) >= BLOCK_ROWS:
            self.close()
        if self.size > most:
            self.covered = bound.copied()

    def close(self) -> None:
        """Join the pairs since the last block."""
        if self.open:
            self.blocks.append(SteppedPairs.joined(self.open))
            self.open.clear()


class LossBounds:
    """Watches the replay of a model; then it has the rows of its bounds."""

    def __init__(
        self, start: ModelState, committed: ModelState, most: int = MOST_PAIR_BYTES
    ) -> None:
        self._start, self._end, self._most = start, committed, most
        self._kind, self._u = kind_of(committed.model.config), committed.model.weights
        self._was_reset, self.not_covered = False, ""
        self._bound: LossBound | None = None
        self._continue(start.model)

    def _continue(self, model: Model) -> None:
        """Start a sum from a model; a model of another kind than the last one has no bound."""
        if (kind_of(model.config), model.weights.size) != (self._kind, self._u.size):
            self._bound, self.not_covered = None, "records of another kind of model"
            return
        try:
            if self._bound is None:
                self._bound = LossBound(self._kind, self._u.size)
                self._final_loss, self._kept = 0.0, KeptPairs([], [])
            self._bound.start(model.weights, model.spread)
        except ValueError as error:
            self._bound, self.not_covered = None, str(error)

    def replaced(self, model: Model) -> None:
        """Another model has replaced the model."""
        self._continue(model)

    def learnt(self, config: ModelConfig, gaps: GapBatch, steps: Steps) -> None:
        """Some pairs of a record were learnt."""
        if self._bound is None:
            return
        rows = gaps.preferred.reshape(-1, config.n)
        columns = steps.loss, steps.outcome, steps.variance
        pairs = self._bound.learnt(rows, gaps.p, gaps.o, *columns, gaps.omega, config.noise)
        if pairs.p.size:
            self._final_loss += pairs.loss(self._u, hinge=self._bound.hinge)
            self._kept.add(pairs, self._bound, self._most)

    def forgot(self, kept: float, initial: Floats) -> None:
        """The learner has forgotten."""
        if self._bound is not None:
            self._bound.forgot(kept, initial)

    def reset(self) -> None:
        """All sums are 0 again."""
        self._was_reset = True

    def rows(self) -> list[BoundRow]:
        """Return the bounds by the final weights and by RankSVM; none without learnt pairs."""
        bound = self._bound
        if bound is None or not bound.pairs:
            return []
        right = bound.right_side(self._u, self._final_loss)
        return [BoundRow("final weights", bound.pairs, bound.loss, right), self._batch(bound)]

    def _batch(self, bound: LossBound) -> BoundRow:
        self._kept.close()
        covered, blocks = self._kept.covered or bound, self._kept.blocks
        u = best_comparator(covered, blocks)
        loss = sum(one.loss(u, hinge=covered.hinge) for one in blocks)
        right = covered.right_side(u, loss)
        return BoundRow("batch RankSVM", covered.pairs, covered.loss, right)

    def lines(self, rows: list[BoundRow]) -> list[str]:
        """Return what to print: each bound, and what it implies for the squared loss and NDCG."""
        if self._bound is None:
            return [f"loss bound: not covered: {self.not_covered}"]
        if not rows:
            return ["loss bound: no pair of the log changed the model"]
        theorem, consequence = THEOREMS[self._kind]
        before = f"loss bound: not covered before a replacement: {self.not_covered}"
        found = [before] if self.not_covered else []
        found += [
            f"{theorem}, {one.comparator}: {one.pairs} pairs, loss {one.loss:.6g}, "
            f"bound {one.bound:.6g}, ratio {one.ratio:.4f}"
            for one in rows
        ]
        squared, implied = self._squared(self._bound, rows)
        how = f"R {self._largest_gap:.6g}, " if self._has_published_factor else ""
        found.append(
            f"{theorem}, squared loss: {squared:.6g}, bound {implied:.6g}, {how}"
            f"ratio {squared / implied:.4f}"
        )
        return found + self._quality(consequence, implied / self._bound.least)

    @property
    def _largest_gap(self) -> float:
        return float(self._end.sums[AT["largest_gap"]])

    @property
    def _has_published_factor(self) -> bool:
        """Whether the factor `R² + 1/(2C)` of Theorem 1 is known: R is kept and covers the log."""
        kept = self._end.model.config.keeps_largest_gap and not self._was_reset
        return self._kind[0] == "solar-i" and kept

    def _squared(self, bound: LossBound, rows: list[BoundRow]) -> tuple[float, float]:
        """Return the weighted sum of the squared losses, and the best bound of it."""
        factor = bound.factor
        if self._has_published_factor:
            factor = bound.largest * self._largest_gap**2 + bound.noise
        best = min(one.bound for one in rows if one.pairs == bound.pairs)
        return bound.squared_loss + bound.tied_loss, factor * best + bound.tied_loss

    def _quality(self, theorem: str, implied: float) -> list[str]:
        """Compare NDCG and MAP with the bound, for γ_NDCG = γ_MAP = 1, their largest values.

        `implied` is a bound of the sum of the squared losses without weights.
        """
        sums = self._end.sums - self._start.sums
        queries = float(sums[AT["queries"]])
        if self._was_reset or self.not_covered or queries < 1.0:
            return []
        least = 1.0 - implied / queries
        ndcg, precision = sums[AT["ndcg"]] / queries, sums[AT["map"]] / queries
        verdict = "" if least > 0.0 else ": vacuous, as no measure is below 0"
        return [f"{theorem}: NDCG {ndcg:.4f} and MAP {precision:.4f}, bound {least:.4g}{verdict}"]

    def problems(self, rows: list[BoundRow]) -> list[str]:
        """Return the violated bounds."""
        theorem, _ = THEOREMS[self._kind]
        rounding = 0.0 if self._bound is None else self._bound.rounding
        return [
            f"{theorem}, {one.comparator}: the loss {one.loss:.9g} exceeds the bound {one.bound:g}"
            for one in rows
            if exceeds(one.loss, one.bound, rounding)
        ]
