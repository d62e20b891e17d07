"""`solar train --group-by` into a store: train in processes, and append to the models' logs."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from app.config import Settings
from app.domain.model_config import ModelConfig
from app.errors import TooManyModels, Unreadable
from app.storage.store import Store
from app.training.groups import Fit, GroupTraining, Outcome
from app.training.targets.groups import GroupReport, GroupRequest, outcomes, replaced_counted
from app.training.targets.store import append_replacement, create_model

T = TypeVar("T")
#: Models that are stored at the same time.
STORED_AT_ONCE = 64


async def groups_into_store(request: GroupRequest, store: Store, settings: Settings) -> str:
    """Train all groups, and replace or create their models; return a summary."""
    with request.workers() as workers:
        data = request.read()
        configs, unusable = await existing_configs(request.names(data), store)
        await check_room(len(request.names(data)) - len(configs) - len(unusable), store, settings)
        tasks = request.tasks(data, configs)
        report = GroupReport(request, tasks)
        training = GroupTraining(request.training, settings.feature_bound, records=True)
        found = outcomes(request, tasks, training, workers, unusable)
        with replaced_counted(report):
            for some in _parts(found, STORED_AT_ONCE):
                failures = await replace_models(some, configs, store, settings)
                for one, failed in zip(some, failures, strict=True):
                    if failed is None:
                        report.add(one)
                for failed in filter(None, failures):
                    raise failed
    return f"{report.finish()}\nmodels replaced: {report.trained}"


async def existing_configs(
    names: Sequence[str], store: Store
) -> tuple[dict[str, ModelConfig], dict[str, str]]:
    """Return the settings of the models that exist, and why others cannot be read."""
    configs: dict[str, ModelConfig] = {}
    unusable: dict[str, str] = {}
    async for name, found in store.states.load_many(names):
        if isinstance(found, Unreadable):
            unusable[name] = f"model: {found}"
        else:
            configs[name] = found.config
    return configs, unusable


async def check_room(new: int, store: Store, settings: Settings) -> None:
    """Raise TooManyModels if the store has no room for these new models."""
    count = len(await store.models.names())
    if new > 0 and count + new > settings.models:
        raise TooManyModels(
            f"expected at most {settings.models} models (SOLAR_MODELS), got {count} and {new} new "
            "ones; delete models or raise the limit"
        )


async def replace_models(
    some: Sequence[Outcome],
    configs: Mapping[str, ModelConfig],
    store: Store,
    settings: Settings,
) -> list[BaseException | None]:
    """Create the models that do not exist, and append the record of each; return the errors."""

    async def replace(outcome: Outcome) -> None:
        task = outcome.task
        if isinstance(outcome.found, Fit):
            if task.model not in configs:
                await create_model(store, task.model, task.config, settings)
            await append_replacement(store, task.model, outcome.found.record, settings)

    return await asyncio.gather(*map(replace, some), return_exceptions=True)


def _parts(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    return iter(lambda: list(islice(rest, size)), [])
