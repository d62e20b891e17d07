"""A follower's model that goes on with records until it takes the place of its leader's.

The bits are those of the follower's own fold. A learner folds in its threads, and a worker asks the
process of trials (`app/runtime/trial_process.py`) by the blobs of `promotion.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from app.domain import codec
from app.domain.followers import promoted_config
from app.domain.model import SUMS, Model, ModelState
from app.domain.model_config import ModelConfig
from app.domain.records import Replace
from app.domain.reducer import Reducer
from app.learning.promotion import FOLD


class FollowerFold:
    """A fold of records onto a follower's model."""

    def __init__(self, model: Model) -> None:
        state = ModelState(0, b"", model, np.zeros(len(SUMS)))
        self._reducer = Reducer(state, follows=True)

    def replacement(self, records: Sequence[bytes], leader: ModelConfig, reason: str) -> bytes:
        """Apply further records; return the record that puts the model in its leader's place."""
        for record in records:
            self._reducer.apply(record)
        model = self._reducer.state().model
        promoted = replace(model, config=promoted_config(leader, model.config))
        return codec.dump_record(Replace(promoted, reason))


def answer(fold: FollowerFold, request: bytes, receive: Callable[[], bytes]) -> bytes:
    """Answer a request of `promotion.py`; `receive` returns the next of its records."""
    fields = codec.load_blob(request, FOLD).fields
    records = [receive() for _ in range(fields["records"])]
    return fold.replacement(records, codec.load_config(fields["leader"]), fields["reason"])
