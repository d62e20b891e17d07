"""Followers and duels of a test, appended like the service does it."""

from app.domain import codec
from app.domain.duels import Duel, EndDuel
from app.domain.followers import follower_config, follower_state
from app.domain.model_config import ModelConfig
from app.domain.records import Record
from app.storage.keys import follower_address, internal_event
from app.storage.log import NewRecord
from app.storage.store import Store
from tests.faults.event_generator import MODEL
from tests.faults.feedback_clients import NO_LIMIT


async def follow(store: Store, epoch: int, configs: dict[str, ModelConfig]) -> None:
    """Create followers at the committed state of the model."""
    state = (await store.states.load(MODEL)).state
    states = {name: follower_state(state, config) for name, config in configs.items()}
    await store.followers.create(MODEL, epoch, states)


async def three_followers(store: Store, epoch: int) -> None:
    """Create followers of each form: another gamma, a diagonal covariance, none."""
    leader = (await store.states.load(MODEL)).state.model.config
    configs = {
        "b": follower_config(leader, gamma=100.0),
        "c": follower_config(leader, covariance="diagonal"),
        "d": follower_config(leader, algorithm="solar-i", C=1e-4),
    }
    await follow(store, epoch, configs)


async def append(store: Store, epoch: int, name: str, record: Record) -> int:
    """Append a record of an administrator, once; return its seq."""
    event = NewRecord(internal_event("admin", name), b"", codec.dump_record(record))
    [answer] = await store.log.append(MODEL, epoch, [event], limit=NO_LIMIT, time=0)
    return answer.seq


async def begin_duel(store: Store, epoch: int, challenger: str = "b") -> int:
    """Begin a duel against a follower; return its id."""
    return await append(store, epoch, f"duel {challenger}", Duel(challenger, 0.5, 0.05))


async def end_duel(store: Store, epoch: int, duel: int) -> None:
    """End a duel."""
    await append(store, epoch, f"end {duel}", EndDuel(duel))


async def committed(store: Store, name: str = "") -> int:
    """Return the seq of the committed state of the model, or of a follower."""
    address = follower_address(MODEL, name) if name else MODEL
    return (await store.states.position(address))[1]
