"""Splines of a new model: knots at quantiles of the training queries, chosen on held-out ones."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from app.domain.model_config import ModelConfig, new_model_config
from app.domain.splines import Splines, rounded_knot
from app.errors import InvalidInput
from app.evaluation.letor import JudgedData
from app.ranking.batch.judgements import Judgements
from app.ranking.limits import MOST_FEATURES_FULL
from app.training import trainer
from app.training.options import Training

#: Segments of the piecewise linear function of each feature, if it has splines.
SEGMENTS = 4

SplineOption = Literal["0", "4", "auto"]
#: Numbers of segments that were tried, each with its quality on held-out queries.
TriedSegments: TypeAlias = tuple[tuple[int, float], ...]


class SplineChoice(NamedTuple):
    """The settings of a new model; `tried` is empty if there was no choice."""

    config: ModelConfig
    tried: TriedSegments = ()


def check_spline_option(wanted: SplineOption | None, training: Training) -> None:
    """Check that there are held-out queries to choose on; InvalidInput otherwise."""
    if wanted == "auto" and training.given is not None:
        raise InvalidInput(
            f"splines: expected held-out queries to choose on; omit --{training.parameter}, or "
            f"give --splines 0 or {SEGMENTS}"
        )


def choose_splines(
    wanted: SplineOption | None,
    data: JudgedData,
    training: Training,
    plain: ModelConfig,
    bound: float,
    quality: Callable[[ModelConfig], float],
) -> SplineChoice:
    """Return the settings with the splines that are wanted, or the better ones: 0 wins a tie.

    `quality` trains a model of these settings, and measures it on held-out queries.
    """
    if wanted is None or wanted == "0":
        return SplineChoice(plain)
    bent = with_splines(plain, data, training, bound)
    if wanted != "auto":
        return SplineChoice(bent)
    without, with_them = quality(plain), quality(bent)
    tried = ((0, without), (SEGMENTS, with_them))
    return SplineChoice(bent if with_them > without else plain, tried)


def with_splines(
    plain: ModelConfig, data: JudgedData, training: Training, bound: float
) -> ModelConfig:
    """Return the settings with knots at the quantiles of the queries that are trained on."""
    if data.sparse:
        raise InvalidInput(
            f"splines: expected at most {MOST_FEATURES_FULL} features, ramps included, got {data.n}"
        )
    judged = trainer.training_part(trainer.judgements(data, plain, bound), training)
    return new_model_config(
        plain.given, covariance=plain.covariance, prior=plain.prior,
        normalization=plain.normalization, splines=quantile_splines(judged, plain.given),
    )  # fmt: skip


def quantile_splines(judged: Judgements, features: Sequence[str]) -> Splines:
    """Return the knots of each feature at its quantiles: different ones that split its values.

    >>> rows = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, 3.0], [9.0, 4.0]])
    >>> quantile_splines(Judgements(rows, np.zeros(5), np.array([0, 5])), ["a", "b"])
    {'b': (1.0, 2.0, 3.0)}
    """
    shares = np.arange(1, SEGMENTS) / SEGMENTS
    found: Splines = {}
    for name, values in zip(features, judged.X.T, strict=True):
        knots = sorted({rounded_knot(knot) for knot in np.quantile(values, shares).tolist()})
        least, most = values.min(), values.max()
        found[name] = tuple(knot for knot in knots if least < knot < most)
    return {name: knots for name, knots in found.items() if knots}


def describe_choice(tried: TriedSegments) -> dict[str, Any]:
    """Describe what was tried, for the result of a training; nothing without a choice."""
    each = [{"segments": segments, "quality": quality} for segments, quality in tried]
    return {"segments": each} if each else {}
