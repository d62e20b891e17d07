"""The settings page: every field of `app.config.Settings`."""

import re
from collections.abc import Iterator

from app.config import SECRETS, VARIABLES, Settings, setting_text
from tools.reference.markdown import code, table

#: The first setting of each group.
_GROUPS = {
    "host": "Server", "keys": "Authentication", "redis_url": "Store", "default_features": "Ranking",
    "body_bytes": "Limits", "jobs": "Training jobs", "access_log": "Logs and traces",
}  # fmt: skip
_LINK = re.compile(r"docs/((\w+)\.md#[\w-]+)")
_HEAD = """# Settings

All settings of SOLAR, with flag, meaning and default.

Each setting is an environment variable and a flag of `solar serve`. A flag wins over the environment,
the environment wins over an env file, and the file wins over the default. `solar config` prints every
setting in force and its source, with secrets masked. It takes the flags of `solar serve`, and `--json`.

- **Env file.** `--env-file FILE` or `SOLAR_ENV_FILE` names it. A `.env` file is not read by default.
  Each line is `SOLAR_PORT=8000`. Quotes and comments work as usual. `${…}` is not expanded. Other names are ignored.
- **Sizes** are bytes, or have a unit: `512MB` (powers of 1000), `1GiB` (powers of 1024).
- **Switches** are `yes` or `no`; `true`, `1`, `false` and `0` work too.
- **Errors.** A wrong value stops the start with a message that names the expected value. An unknown `SOLAR_…` name
  is an error that suggests the nearest name.
- **Other names.** `SOLAR_KEY` (the API key of a client command), `SOLAR_DEV_…` (tests and tools) and the
  addresses that Kubernetes sets for Services are ignored. If Kubernetes sets `SOLAR_PORT` for a Service named `solar`,
  set `enableServiceLinks: false` in the pod.
"""


def page() -> str:
    """Render the page."""
    return _HEAD + "".join(_groups())


def _groups() -> Iterator[str]:
    fields = list(Settings.model_fields)
    starts = [fields.index(name) for name in _GROUPS]
    for title, first, last in zip(
        _GROUPS.values(), starts, [*starts[1:], len(fields)], strict=True
    ):
        rows = (_row(name) for name in fields[first:last])
        yield f"\n## {title}\n\n{table(['variable', 'flag', 'meaning', 'default'], rows)}\n"


def _row(name: str) -> list[str]:
    field = Settings.model_fields[name]
    variable = next(key for key, value in VARIABLES.items() if value == name)
    flag = f"--no-{name}" if field.default is True else f"--{name.replace('_', '-')}"
    secret = " Secret." if name in SECRETS else ""
    meaning = _LINK.sub(r"[\2](../\1)", f"{field.description}".rstrip("."))
    default = setting_text(name, field.default)
    return [
        code(variable),
        code(flag),
        f"{meaning[0].upper()}{meaning[1:]}.{secret}",
        code(default),
    ]
