"""Stalled followers that the log has left behind: no replay leads to them."""

from app.domain.reducer import sound
from app.errors import BadBlob, NoSuchModel
from app.storage.keys import is_follower
from app.storage.store import Store


async def is_cut_off(store: Store, model: str) -> bool:
    """Whether it is a stalled follower, and the log begins after its first version."""
    if not is_follower(model) or not await store.followers.is_stalled(model):
        return False
    start = min(await store.states.versions(model), default=0)
    following = await store.log.read(model, start, 1)
    if following:
        return following[0].seq > start + 1
    return start < await store.log.tail(model)


async def check_stored(store: Store, model: str) -> list[str]:
    """Check the state and the versions of such a follower without the log; return what is wrong."""
    problems = []
    for version in await store.versions.placed(model):
        try:
            await store.states.load_at(model, version.key)
        except BadBlob as error:
            problems.append(f"version {version.seq}: {error}")
        except NoSuchModel:
            problems.append(f"version {version.seq}: expected a state, got none")
    try:
        committed = (await store.states.load(model)).state
    except BadBlob as error:
        return [*problems, str(error)]
    tail = await store.log.tail(model)
    if committed.seq > tail:
        problems.append(f"seq: the state is at {committed.seq}, but the log ends at {tail}")
    return problems + sound(committed.model)
