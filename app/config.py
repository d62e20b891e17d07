"""Every setting, with unit and default: a `SOLAR_…` variable, and a flag of `solar serve`.

A flag wins over the environment, the environment over an env file, the file over the default.
"""

import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

from dotenv.parser import parse_stream
from pydantic import BeforeValidator, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from app.errors import SolarError

GIB = 1 << 30
DAY = 86_400.0
_MOST = 1 << 62  # of a whole number without a bound of its own
DATA = Path("data")

_SIZE = re.compile(r"([0-9]+)\s*([kmgt])(i?)b", re.IGNORECASE)


def _multiplied(value: object) -> object:
    """The bytes of `1GiB` or `512MB`; what has no unit is left to the type."""
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        return value
    return int(found[1]) * (1024 if found[3] else 1000) ** (1 + "kmgt".index(found[2].lower()))


Size = Annotated[int, BeforeValidator(_multiplied), Field(ge=1, le=_MOST)]


class Settings(BaseSettings):
    """What a process is told from outside; made directly, it reads no environment."""

    model_config = SettingsConfigDict(
        env_prefix="SOLAR_", frozen=True, hide_input_in_errors=True, allow_inf_nan=False
    )

    host: str = Field(default="127.0.0.1", description="the address to serve on")
    port: int = Field(
        default=8000, ge=0, le=65_535, description="the port to serve on; 0: any that is free"
    )
    workers: int = Field(default=1, ge=1, le=256, description="processes that serve")
    learner: bool = Field(
        default=True, description="whether the service also learns, in a process of its own"
    )
    keys: str = Field(
        default="",
        repr=False,
        description="API keys as `solar key` prints them, separated by commas",
    )
    insecure: bool = Field(
        default=False, description="whether to serve beyond loopback without keys"
    )
    cors: str = Field(
        default="", description="origins that browsers may call from, separated by commas"
    )
    redis_url: str = Field(
        default="", repr=False, description="the store; empty: an embedded server is started"
    )
    durability: Literal["", "local", "fsync", "replicated"] = Field(
        default="",
        description="what an acknowledgement survives: `local`, `fsync`, `replicated`; "
        "see operations",
    )
    data_dir: Path = Field(default=DATA, description="where the embedded server keeps its data")
    memory: Size = Field(default=GIB, description="the embedded server's memory limit")
    lease: float = Field(
        default=5.0, ge=0.001, description="how long a dead learner keeps its models, in seconds"
    )
    default_features: str = Field(
        default="",
        description="the features of the model `default`, created at its first use: "
        "names or a count",
    )
    impression_seconds: float = Field(
        default=1800.0,
        ge=5.0,
        le=2 * DAY,
        description="how long an answer can get feedback, in seconds",
    )
    remember_seconds: float = Field(
        default=0.05,
        ge=0.001,
        le=60.0,
        description="how long `/rank` waits until its answer is stored, in seconds",
    )
    wait_seconds: float = Field(
        default=1.0, ge=0.0, le=60.0, description="how long `min_seq` may wait, in seconds"
    )
    body_bytes: Size = Field(default=10_000_000, description="the largest body")
    body_seconds: float = Field(
        default=10.0, ge=0.01, description="how long a body may take to arrive, in seconds"
    )
    documents: int = Field(
        default=1000, ge=1, le=100_000, description="the most documents in one request"
    )
    pairs: int = Field(
        default=100_000, ge=1, le=_MOST, description="the most pairs that one event may give"
    )
    events: int = Field(default=1000, ge=1, le=2000, description="the most events in one post")
    id_length: int = Field(default=128, ge=1, le=1024, description="the most characters of an id")
    feature_bound: float = Field(
        default=1e4,
        ge=0.0,
        le=1e38,
        description="the largest feature, up or down, of a model without normalization",
    )
    backlog: int = Field(
        default=100_000, ge=1, le=_MOST, description="the most records that may wait to be learnt"
    )
    source_share: float = Field(
        default=1.0, ge=0.0, le=1.0, description="the share of a minute's feedback from one source"
    )
    jobs: int = Field(default=1, ge=1, le=64, description="trainings at once in one worker")
    training_memory: Size = Field(
        default=4 * GIB, description="the memory that one training may use"
    )
    upload_bytes: Size = Field(default=GIB, description="the largest judged text, unpacked")
    upload_seconds: float = Field(
        default=600.0, ge=0.01, description="how long an upload may take to arrive, in seconds"
    )
    upload_dir: str = Field(
        default="", description="where uploads are kept; empty: in the data directory"
    )
    check_seconds: float = Field(
        default=10.0,
        ge=0.0,
        le=600.0,
        description="how long an upload's answer waits until the data is read, in seconds",
    )
    access_log: bool = Field(
        default=False, description="whether every request is logged, not only refused ones"
    )
    otel: bool = Field(
        default=False, description="whether requests are traced by OpenTelemetry; see operations"
    )

    @property
    def uploads(self) -> Path:
        """Where uploads are kept."""
        return Path(self.upload_dir) if self.upload_dir else self.data_dir / "uploads"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take the arguments alone: `read_settings` reads the environment."""
        return (init_settings,)


#: Variable → field.
VARIABLES = {f"SOLAR_{name.upper()}": name for name in Settings.model_fields}
#: Fields whose values are never shown.
SECRETS = {name for name, field in Settings.model_fields.items() if not field.repr}

ENV_FILE = "SOLAR_ENV_FILE"
CALLERS_KEY = "SOLAR_KEY"
_DEVELOPMENT = "SOLAR_DEV_"  # what only tests and tools read
_SERVICE_LINK = re.compile(
    r"\w+_SERVICE_(HOST|PORT(_\w+)?)|\w+_PORT_[0-9]+_(TCP|UDP|SCTP)(_\w+)?", re.ASCII
)
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")
_FILE_LINE = re.compile(r"\s*(?:export\s+)?(SOLAR_\w*)")


def read_settings(
    environ: Mapping[str, str] | None = None, env_file: str | None = None, **overrides: Any
) -> Settings:
    """The settings in force; SolarError names a variable that is wrong, and what was expected."""
    sources = read_sources(environ, env_file, **overrides)
    for complaint in sources.complaints:
        raise SolarError(complaint)
    values: dict[str, Any] = {}
    for given in sources.given.values():
        values |= given
    return Settings(**values)


class Sources(NamedTuple):
    """What each source gives, by its name: a later one wins; and what is wrong with names."""

    given: dict[str, dict[str, Any]]
    complaints: list[str]


def read_sources(
    environ: Mapping[str, str] | None = None, env_file: str | None = None, **overrides: Any
) -> Sources:
    """Read every source of settings; SolarError names a value that is wrong."""
    given = os.environ if environ is None else environ
    found = Sources({}, [])
    if file := env_file or given.get(ENV_FILE):
        texts = _texts(_file_lines(file), found.complaints, f"{file}: ")
        found.given[f"file {file}"] = _parsed(texts, f"{file}: ")
    found.given["environment"] = _parsed(_texts(given, found.complaints))
    found.given["flag"] = _parsed(overrides)
    return found


def parse_setting(name: str, text: str) -> Any:
    """The value of one setting; ValueError says what was expected."""
    given: dict[str, Any] = {name: text}
    try:
        return getattr(Settings(**given), name)
    except ValidationError:
        raise ValueError(_refusal(name, text)) from None


def is_size(name: str) -> bool:
    """Whether a setting is a number of bytes, for which `1GiB` can be written."""
    return any(isinstance(one, BeforeValidator) for one in Settings.model_fields[name].metadata)


def _parsed(texts: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    try:
        settings = Settings(**texts)
    except ValidationError as error:
        name = str(error.errors(include_input=False)[0]["loc"][0])
        refusal = _refusal(name, texts[name])
        raise SolarError(f"{where}SOLAR_{name.upper()}: {refusal}") from None
    return {name: getattr(settings, name) for name in texts}


def _refusal(name: str, given: object) -> str:
    got = "" if name in SECRETS else f", got {str(given)[:64]!r}"
    return f"expected {_expected(name)}{got}"


def _expected(name: str) -> str:
    """What a setting can be, in words."""
    field = Settings.model_fields[name]
    if field.annotation is bool:
        return "yes or no"
    if choices := get_args(field.annotation):
        return f"one of {', '.join(filter(None, choices))}, or nothing"
    if is_size(name):
        return "a size in bytes such as 1GiB, 512MB or 1048576"
    if field.annotation in (str, Path):
        return "text"
    bounds = {
        side: getattr(one, side)
        for one in field.metadata
        for side in ("ge", "le")
        if hasattr(one, side)
    }
    most = bounds.get("le", _MOST)
    kind = "a whole number" if field.annotation is int else "a number"
    return f"{kind} from {bounds['ge']:.15g}" + (f" to {most:.15g}" if most != _MOST else "")


def _texts(given: Mapping[str, str], complaints: list[str], where: str = "") -> dict[str, Any]:
    """Texts by field. pydantic-settings does not see unknown names, so we add complaints."""
    ours = {name: text for name, text in given.items() if name.startswith("SOLAR_")}
    wrong = {name: said for name, text in ours.items() if (said := _complaint(name, text))}
    complaints += [f"{where}{name}: {said}" for name, said in wrong.items()]
    source = EnvSettingsSource(Settings)
    known = VARIABLES.keys() & ours.keys() - wrong.keys()
    source.env_vars = {name.lower(): ours[name] for name in known}
    return source()


def _complaint(name: str, text: str) -> str | None:
    """What is wrong with a variable of this name, if anything is."""
    is_address = _SERVICE_ADDRESS.match(text)
    if name == "SOLAR_PORT" and is_address:
        return "set by Kubernetes for a Service named solar; set enableServiceLinks: false"
    known = [*VARIABLES, ENV_FILE, CALLERS_KEY]
    if name in known or name.startswith(_DEVELOPMENT):
        return None
    if _SERVICE_LINK.fullmatch(name) or (name.endswith("_PORT") and is_address):
        return None
    short = [one.removeprefix("SOLAR_") for one in known]  # else all names are near: they begin so
    near = get_close_matches(name.removeprefix("SOLAR_").upper(), short, n=1)
    hint = f"did you mean SOLAR_{near[0]}?" if near else "solar config lists them"
    return f"no such setting; {hint}"


def _file_lines(file: str) -> dict[str, str]:
    """The `SOLAR_…` lines of an env file; SolarError if it cannot be read."""
    try:
        with Path(file).open(encoding="utf-8-sig") as opened:
            lines = list(parse_stream(opened))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "expected UTF-8"
        raise SolarError(f"{file}: {why}; --env-file or {ENV_FILE} names this file") from None
    found = {}
    for line in lines:
        ours = _FILE_LINE.match(line.original.string)
        if ours is None:
            continue
        if line.key is None or line.value is None:
            raise SolarError(f"{file}: {ours[1]}: expected {ours[1]}=VALUE, with quotes closed")
        found[line.key] = line.value
    return found
