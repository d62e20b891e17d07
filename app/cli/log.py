"""`solar log`: print the log records of a model."""

import argparse
import json
import time
from dataclasses import asdict
from typing import Any

from app.cli.options import add_store_arguments, natural, positive
from app.cli.with_store import Print, address_of, with_store
from app.domain import codec, duel_fields
from app.domain.duels import Duel, EndDuel
from app.domain.records import Feedback, Record, Replace, Retune
from app.errors import BadBlob
from app.learning import replay
from app.storage.keys import leader_of
from app.storage.store import Store


def add_log_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `solar log`."""
    add_store_arguments(parser)
    parser.add_argument("model", metavar="MODEL", help="name of the model or follower")
    parser.add_argument(
        "--after", type=natural, default=0, metavar="SEQ",
        help="print records after this sequence number (default 0)",
    )  # fmt: skip
    parser.add_argument(
        "--count", type=positive, default=1000, metavar="N",
        help="maximum number of records to print (default 1000)",
    )  # fmt: skip
    parser.set_defaults(run=lambda options: with_store(options, _log, existing=True))


async def _log(options: argparse.Namespace, store: Store) -> None:
    await show_log(store, options.model, options.after, options.count, print)


async def show_log(store: Store, model: str, after: int, count: int, show: Print) -> None:
    """Print up to `count` log records, one per line."""
    model = leader_of(await address_of(store, model))
    tail = await store.log.tail(model)
    start = max(after, min(await store.states.versions(model), default=0))
    until = min(tail, start + count)
    async for entry in replay.entries(store, model, start, until):
        replay.refuse_newer_entry(entry)
        show(f"{entry.seq:>8}  {_when(entry.time)}  {_described(entry.record)}")


def _described(blob: bytes) -> str:
    try:
        record = codec.load_record(blob)
    except BadBlob as error:
        return f"unreadable: {error}"
    return json.dumps(_fields(record), ensure_ascii=False)


def _fields(record: Record) -> dict[str, Any]:
    if isinstance(record, Feedback):
        arrays = {
            "clicks": record.clicks, "before": record.clicked_before, "labels": record.labels,
            "preferred": record.preferred, "other": record.other,
        }  # fmt: skip
        return {
            "feedback": record.kind, "event": record.event, "query": record.query,
            "source": record.source, "documents": len(record.documents),
            **{name: array.tolist() for name, array in arrays.items() if array is not None},
        }  # fmt: skip
    if isinstance(record, Replace):
        config = record.model.config
        return {"replace": record.reason, "algorithm": config.algorithm, "n": config.n}
    if isinstance(record, Retune):
        settings = asdict(record)
        return {"retune": {name: new for name, new in settings.items() if new is not None}}
    if isinstance(record, Duel):
        return {"duel": duel_fields.dump_duel(record)}
    if isinstance(record, EndDuel):
        return {"end of duel": record.duel, "why": record.why}
    return {"reset": "measures"}


def _when(milliseconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(milliseconds / 1000))
