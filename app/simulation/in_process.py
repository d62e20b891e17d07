"""A model with followers and duels in this process, folded by the reducers of the service.

Rankings, impressions, records and folds are those of the service (`app/domain`); only the store and
the time between them are left out: each record is applied before the next request.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from app.domain import candidates, codec, duel_lists, duels
from app.domain.candidates import Ranking
from app.domain.duel_lists import Sides
from app.domain.duels import SUBMITTED, Duel, DuelState, EndDuel, Promotion
from app.domain.followers import follower_config, follower_state, promoted_config
from app.domain.model import Documents, ModelState, initial_state
from app.domain.model_config import ModelConfig
from app.domain.records import Feedback, Record, Replace
from app.domain.reducer import Reducer, decoded
from app.errors import SolarError
from app.ranking.arrays import Floats, Integers

Uniforms = Callable[[int], Floats]


class ShownList(NamedTuple):
    """A ranking of documents, and the id of its duel; 0 without one."""

    documents: Documents
    ranking: Ranking
    duel: int


class InProcessModel:
    """A model, its followers and its duels; `top_k` documents are shown."""

    def __init__(self, config: ModelConfig, top_k: int) -> None:
        self._leader, self._top_k = Reducer(initial_state(config)), top_k
        self._followers: dict[str, Reducer] = {}
        self._states: dict[str, ModelState] = {}  # by name, "" is the model; since the last record

    def follow(self, name: str, settings: Mapping[str, object]) -> None:
        """Create a follower with these settings, from the weights of the model."""
        state = self.state()
        config = follower_config(state.model.config, **settings)
        self._followers[name] = Reducer(follower_state(state, config), follows=True)

    def state(self, name: str = "") -> ModelState:
        """Return the state of the model or of a follower."""
        if name not in self._states:
            reducer = self._followers[name] if name else self._leader
            self._states[name] = reducer.state()
        return self._states[name]

    @property
    def duel(self) -> DuelState | None:
        """The duel that is on, or the last one."""
        return self.state().duel

    def append(self, record: Record) -> None:
        """Append a record: all models apply it, then a tournament takes its next step."""
        self._apply(record)
        while (step := self._next_step()) is not None:
            self._apply(self._promoted(step.follower) if isinstance(step, Promotion) else step)

    def _next_step(self) -> Duel | EndDuel | Promotion | None:
        duel = self.duel
        return duels.next_step(duel, ()) if duel is not None and duel.is_on else None

    def _apply(self, record: Record) -> None:
        blob = codec.dump_record(record)
        found = decoded(blob)
        for reducer in (self._leader, *self._followers.values()):
            if not reducer.apply_decoded(blob, found):
                raise SolarError("simulation: expected a record that the model accepts")
        self._states.clear()

    def _promoted(self, follower: str) -> Replace:
        model = self.state(follower).model
        config = promoted_config(self.state().model.config, model.config)
        return Replace(replace(model, config=config), f"promotion of {follower}")

    def rank(self, documents: Documents, duels_by: Uniforms, draws: Uniforms) -> ShownList:
        """Answer a request; `duels_by` and `draws` give its uniforms for duels and for samples."""
        state = self.state()
        duel, model = state.duel, state.model
        if duel is not None and duel.is_on and duel_lists.duels(duels_by, duel.settings.share):
            sides = Sides(*(self._weights(name) for name in _names(duel)))
            found = duel_lists.interleaved(
                documents, model.weights, sides, self._top_k, duels_by, candidates.NO_PINS
            )
            return ShownList(documents, found, duel.id)
        explore = None
        if model.config.explores:
            amount = model.config.exploration or 0.0
            scale = model.certainty.scale(model.config.noise, amount)
            explore = candidates.exploring_by(model.config, draws, scale)
        found = candidates.rank_candidates(documents, model.weights, self._top_k, explore)
        return ShownList(documents, found, 0)

    def _weights(self, name: str) -> Floats | None:
        return None if name == SUBMITTED else self.state(name).model.weights

    def click(self, answer: ShownList, clicks: Integers) -> None:
        """Append the clicks on an answer."""
        self.append(feedback(answer, clicks))


def _names(duel: DuelState) -> tuple[str, str]:
    return duel.settings.champion, duel.settings.challenger


def feedback(answer: ShownList, clicks: Integers) -> Feedback:
    """Return the record of clicks on an answer, if they are the first event on it."""
    shown, ranking = answer.ranking.shown, answer.ranking
    teams = None if ranking.teams is None else duel_lists.with_id(answer.duel, ranking.teams)
    return Feedback(
        "click", "clicks", answer.documents[shown], shown, clicks=clicks,
        odds=ranking.odds, swaps=ranking.swaps, duel=teams,
    )  # fmt: skip
