"""`solar replay`: apply a model's log again; compare or replace the committed state."""

import argparse
import time
from uuid import uuid4

from app.cli.options import add_store_arguments
from app.cli.with_store import Print, address_of, with_store
from app.domain import codec
from app.domain.records import Replace
from app.errors import Fenced, SolarError
from app.learning import replay
from app.learning.replay import REPLAY_ATTEMPTS, LogReplay
from app.storage.keys import follower_name, internal_event, is_follower, leader_of
from app.storage.log import NewRecord
from app.storage.store import Store


def add_replay_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `solar replay`."""
    add_store_arguments(parser)
    parser.add_argument("model", metavar="MODEL", help="name of the model or follower")
    parser.add_argument(
        "--without-source",
        metavar="SOURCE",
        help="leave out the records of this feedback source: NAME (also of any API key, KEY/NAME), "
        "KEY/NAME, or KEY/ for all that a key sent",
    )
    parser.add_argument(
        "--apply",
        action="store_true",
        help="replace the model by the result; requires --without-source",
    )
    parser.set_defaults(run=lambda options: with_store(options, _replay, existing=True))


async def _replay(options: argparse.Namespace, store: Store) -> None:
    if options.apply and options.without_source is None:
        raise SolarError("--apply: expected --without-source SOURCE too, got none")
    await replay_log(store, options.model, options.without_source, options.apply, print)


async def replay_log(
    store: Store, model: str, without: str | None, apply: bool, show: Print
) -> None:
    """Apply the log again; compare the result with the committed state, or replace that state."""
    address = await address_of(store, model)
    if apply and is_follower(address):
        raise SolarError(
            f"{model}: --apply: expected a model, got a follower of {leader_of(address)}"
        )
    found = await replay.replay(store, address, without)
    records = found.end - found.start - found.skipped
    show(f"{model}: applied {records} records from version {found.start}")
    await show_older_versions(store, address, found.start, show)
    if without is None:
        differences = found.differences()
        if differences:
            raise SolarError(f"{model}: the replay differs in {', '.join(differences)}")
        show(f"{model}: the replay equals the committed state at record {found.committed.seq}")
        return
    show(f"{model}: left out {found.skipped} records of source {without}")
    if not found.skipped:
        show(f"{model}: no record has this source; `solar log {model}` prints the sources")
    if found.running.kept_by_replacement:
        show(
            f"{model}: {found.running.kept_by_replacement} of them are before a record that "
            "replaces the model: their influence stays"
        )
    if apply:
        seq = await _append_result(store, model, found.running, f"without source {without}")
        show(f"{model}: record {seq} replaces the model by the result")


async def show_older_versions(store: Store, address: str, start: int, show: Print) -> None:
    """Say how many versions are kept from before the start of a replay."""
    older = sum(one.seq < start for one in await store.versions.placed(address))
    if older:
        show(
            f"{follower_name(address)}: the log begins after version {start}; {older} older "
            "hourly or named versions can be rolled back to, but not replayed from"
        )


async def _append_result(store: Store, model: str, running: LogReplay, reason: str) -> int:
    """Append the result after its last record; first apply records that arrived meanwhile."""
    epoch, *_ = await store.states.position(model)
    for _ in range(REPLAY_ATTEMPTS):
        record = codec.dump_record(Replace(running.reducer.state().model, reason))
        event = NewRecord(internal_event("replay", str(uuid4())), b"", record)
        try:
            appended = await store.log.append(
                model, epoch, [event],
                limit=1 << 40, time=int(time.time() * 1000), tail=running.at,
            )  # fmt: skip
        except Fenced:
            await running.go_on(store, model, await store.log.tail(model))
        else:
            return appended[0].seq
    raise Fenced(
        f"model {model}: feedback arrives faster than the replay applies it; try again later"
    )
