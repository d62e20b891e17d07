"""`solar train` into a file: train a batch model and write its weights."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from tqdm import tqdm

from app.domain.model_config import Covariance, ModelConfig, new_model_config
from app.errors import InvalidInput, SolarError
from app.evaluation import letor
from app.evaluation.letor import JudgedData
from app.ranking.limits import MOST_FEATURES_FULL
from app.training import trainer
from app.training.options import Training, check_normalization
from app.training.splines import SplineChoice, SplineOption, choose_splines, describe_choice
from app.training.trainer import BatchModel, Progressed


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """Input files, training options and output file."""

    files: tuple[Path, ...]
    validate: Path | None
    training: Training
    output: Path | None
    normalization: str | None = None  # None: that of the model; a new one has none
    splines: SplineOption | None = None  # None: those of the model; a new one has none

    def read(self) -> tuple[JudgedData, Training]:
        """Read all judged data; validation queries come last."""
        if self.validate is None:
            return letor.read_letor(self.files), self.training
        *parts, last = letor.read_parts([*self.files, self.validate])
        queries = [query for part in (*parts, last) for query in part.queries]
        training = msgspec.structs.replace(self.training, validation=float(len(last.queries)))
        return JudgedData(last.n, queries), training

    def check_existing(self, normalization: str) -> None:
        """Refuse options that only a new model can have; InvalidInput."""
        check_normalization(self.normalization, normalization)
        if self.splines is not None:
            raise InvalidInput(
                "splines: expected a new model, as knots are fixed at its creation; omit the "
                "option, or choose another --model"
            )

    def write(
        self, weights: dict[str, float], normalization: str, splines: Any, about: Any
    ) -> None:
        """Write the weights and how features are prepared to the output file, if there is one."""
        if self.output is None:
            return
        found = described_model(weights, normalization, splines, about)
        write_text(self.output, json.dumps(found, indent=1) + "\n")


def described_model(
    weights: dict[str, float], normalization: str, splines: Any, about: Any
) -> dict[str, Any]:
    """Describe a trained model for an output file: weights, and how features are prepared."""
    found = {"weights": weights, "normalization": normalization}
    found |= {"splines": splines} if splines else {}
    return {**found, "training": about}


def write_text(path: Path, text: str) -> None:
    """Write a file; SolarError if that fails."""
    try:
        path.write_text(text)
    except OSError as error:
        raise SolarError(f"{path}: {error.strerror}") from error


def new_config(
    n: int, normalization: str | None, names: tuple[str, ...] | None = None
) -> ModelConfig:
    """Settings of a new model with n features, `f1` … `fn` without names, and no splines."""
    features = names or tuple(f"f{at}" for at in range(1, n + 1))
    covariance: Covariance = "full" if n <= MOST_FEATURES_FULL else "diagonal"
    return new_model_config(
        features, covariance=covariance, prior=0.0, normalization=normalization or "none"
    )


def planned(
    request: TrainingRequest, data: JudgedData, training: Training, bound: float
) -> SplineChoice:
    """Choose the settings of a new model for the data."""
    plain = new_config(data.n, request.normalization)

    def quality(config: ModelConfig) -> float:
        found, _ = trained(data, training, config, bound)
        return max(quality for _, quality in found.tried)

    return choose_splines(request.splines, data, training, plain, bound, quality)


def trained(
    data: JudgedData, training: Training, config: ModelConfig, bound: float
) -> tuple[BatchModel, dict[str, Any]]:
    """Train in this process, with a progress bar on a terminal."""
    with tqdm(unit=" iterations", disable=None, leave=False) as bar:

        def report(progress: Progressed) -> None:
            show(bar, training, progress.described())

        watched = None if bar.disable else report  # there is no terminal
        found = trainer.train_batch(trainer.judgements(data, config, bound), training, watched)
    return found, trainer.describe_training(found, training, config.normalization)


def show(bar: "tqdm[Any]", training: Training, progress: dict[str, Any]) -> None:
    """Show the progress on the bar."""
    if "iteration" not in progress:
        return
    bar.set_description(f"{training.trainer}, {training.parameter} = {progress['parameter']:.3g}")
    shown = {name: f"{progress[name]:.4g}" for name in ("objective", "distance", "ndcg@10")}
    bar.set_postfix(shown, refresh=False)
    bar.n = progress["iteration"]
    bar.refresh()


def into_file(request: TrainingRequest, bound: float) -> str:
    """Train and write the model; return a summary."""
    data, training = request.read()
    config, tried = planned(request, data, training, bound)
    found, about = trained(data, training, config, bound)
    about |= describe_choice(tried)
    weights = dict(zip(config.columns, found.weights.tolist(), strict=True))
    request.write(weights, config.normalization, config.splines, about)
    return summary(about)


def summary(about: dict[str, Any]) -> str:
    """Summarise a training in a few lines."""
    named = "penalty" if "penalty" in about else "C"
    size = f"{about['queries']} queries, {about['documents']} documents"
    quality = f"NDCG@10 {about['ndcg@10']:.4f} on these queries"
    zeros = f"{about['zeros']:.0%} of the weights are 0"
    lines = [f"{size}; {named} = {about[named]:.4g}, {quality}, {zeros}"]
    if "tried" in about:
        best = max(one["quality"] for one in about["tried"])
        lines.append(
            f"best of {len(about['tried'])} values on held-out queries: {about['by']} {best:.4f}"
        )
    if "segments" in about:
        without, bent = about["segments"]
        lines.append(
            f"held-out {about['by']}: {without['quality']:.4f} without splines, "
            f"{bent['quality']:.4f} with {bent['segments']} segments for each feature"
        )
    if not about["converged"]:
        lines.append("warning: the training stopped before it converged")
    return "\n".join(lines)
