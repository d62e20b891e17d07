"""What feedback on a list of a duel adds to the duel. Pure."""

import numpy as np

from app.domain.duels import DuelState, with_clicks
from app.domain.impressions import all_clicks, as_positions
from app.domain.model import Positions
from app.domain.records import Feedback


def after_event(duel: DuelState, event: Feedback, teams: Positions) -> DuelState:
    """Return the duel after an event; only clicks on a list of the duel that is on count.

    `teams` is the id of the list's duel, then the team of each place.
    """
    if event.kind != "clicks" or not duel.is_on or duel.id != teams[0]:
        return duel
    clicks, ends = all_clicks(event), np.zeros(0, np.int64)
    if event.rounds is not None and event.rounds.size:
        ends = as_positions(event.rounds, len(clicks) + 1)
    return with_clicks(duel, teams[1:], clicks, ends)
