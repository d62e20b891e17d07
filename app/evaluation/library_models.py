"""Models of scikit-learn and LightGBM for `solar evaluate --folds --compare`, untuned.

    svr-l1, svr-l2    linear support vector regression on the labels, ε = 0, C = 1
    random-forest     40 trees, √n features for a split
    gbdt              gradient boosting: 100 trees of depth 4, rate 0.1
    lambdamart        LightGBM's defaults: 100 trees of 31 leaves, rate 0.1

The settings are those of section 4.5 of "Large-scale Linear RankSVM", which has no LambdaMART and
chooses C. Nothing is chosen on validation queries. All models run on one thread.

The libraries are the extra `compare`. Only this module imports them, when a model is trained.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from app.evaluation.fold_systems import System
from app.evaluation.folds import Fold
from app.ranking.arrays import Floats
from app.ranking.batch.judgements import Judgements
from app.ranking.measures import Discount
from app.ranking.solar import Rows

LIBRARIES = ("sklearn", "lightgbm")


@dataclass(frozen=True, slots=True)
class Predictor:
    """A model of a library that scores by `predict`."""

    model: Any

    def score(self, documents: Rows) -> Floats:
        """Score each document."""
        return np.asarray(self.model.predict(np.asarray(documents, np.float64)), np.float64)


def unavailable_libraries() -> str | None:
    """Return why the libraries cannot be imported; None if they can."""
    for name in LIBRARIES:
        try:
            import_module(name)
        except (ImportError, OSError) as error:  # OSError: LightGBM without libgomp
            return str(error)
    return None


def _svr(judged: Judgements, seed: int, loss: str) -> Any:
    from sklearn.svm import LinearSVR  # noqa: PLC0415  # in the extra

    model = LinearSVR(loss=loss, dual="auto", max_iter=100_000, random_state=seed)
    return model.fit(judged.X, judged.labels)


def _forest(judged: Judgements, seed: int) -> Any:
    from sklearn.ensemble import RandomForestRegressor  # noqa: PLC0415  # in the extra

    model = RandomForestRegressor(40, max_features="sqrt", n_jobs=1, random_state=seed)
    return model.fit(judged.X, judged.labels)


def _gbdt(judged: Judgements, seed: int) -> Any:
    from sklearn.ensemble import GradientBoostingRegressor  # noqa: PLC0415  # in the extra

    model = GradientBoostingRegressor(
        n_estimators=100, max_depth=4, learning_rate=0.1, random_state=seed
    )
    return model.fit(judged.X, judged.labels)


def _lambdamart(judged: Judgements, seed: int) -> Any:
    """LightGBM takes whole labels: the numbers of the levels, with the gains of the labels."""
    import lightgbm  # noqa: PLC0415  # in the extra

    levels, numbers = np.unique(judged.labels, return_inverse=True)
    settings = {
        "objective": "lambdarank", "label_gain": (2.0**levels - 1.0).tolist(), "num_threads": 1,
        "deterministic": True, "verbosity": -1, "seed": seed,
    }  # fmt: skip
    data = lightgbm.Dataset(judged.X, numbers, group=np.diff(judged.starts))
    return lightgbm.train(settings, data, num_boost_round=100)


def _system(name: str, fit: Callable[[Judgements, int], Any]) -> System:
    def train(fold: Fold, _: Discount, rng: np.random.Generator) -> Predictor:
        return Predictor(fit(Judgements.of(fold.train), int(rng.integers(1 << 31))))

    return System(name, train, untuned=True)


LIBRARY_SYSTEMS = (
    _system("svr-l1", partial(_svr, loss="epsilon_insensitive")),
    _system("svr-l2", partial(_svr, loss="squared_epsilon_insensitive")),
    _system("random-forest", _forest),
    _system("gbdt", _gbdt),
    _system("lambdamart", _lambdamart),
)
