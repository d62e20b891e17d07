"""A record that replaces a model by itself."""

from app.domain import codec
from app.domain.records import Replace
from app.storage.log import NewRecord
from app.storage.store import Store
from tests.faults.event_generator import MODEL
from tests.faults.feedback_clients import NO_LIMIT


async def replace_now(store: Store, epoch: int, name: str, model: str = MODEL) -> int:
    """Append a replacement by the committed model; return its seq."""
    carried = (await store.states.load(model)).state.model
    event = NewRecord(name, b"", codec.dump_record(Replace(carried, "a test")))
    return (await store.log.append(model, epoch, [event], limit=NO_LIMIT, time=0))[0].seq
