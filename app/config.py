"""Settings with units and defaults: each is a `SOLAR_…` variable and a flag of `solar serve`.

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
_MAXIMUM = 1 << 62  # of whole numbers that have no other upper bound
DATA = Path("data")

_SIZE = re.compile(r"([0-9]+)\s*([kmgt])(i?)b", re.IGNORECASE)


def _parse_size(value: object) -> object:
    """Convert `1GiB` or `512MB` to bytes; other values are returned unchanged."""
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        return value
    return int(found[1]) * (1024 if found[3] else 1000) ** (1 + "kmgt".index(found[2].lower()))


Size = Annotated[int, BeforeValidator(_parse_size), Field(ge=1, le=_MAXIMUM)]


def _parse_optional_size(value: object) -> object:
    """Convert an empty text to None, and others as `_parse_size` does."""
    return None if value == "" else _parse_size(value)


OptionalSize = Annotated[
    Annotated[int, Field(ge=0, le=_MAXIMUM)] | None, BeforeValidator(_parse_optional_size)
]


class Settings(BaseSettings):
    """All settings of a process; the constructor does not read the environment."""

    model_config = SettingsConfigDict(
        env_prefix="SOLAR_", frozen=True, hide_input_in_errors=True, allow_inf_nan=False
    )

    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(
        default=8000, ge=0, le=65_535, description="TCP port to listen on; 0 picks a free port"
    )
    workers: int = Field(
        default=1, ge=1, le=256, description="number of worker processes that answer requests"
    )
    learner: bool = Field(
        default=True,
        description="learner in a separate process; if off, run `solar learn` elsewhere",
    )
    keys: str = Field(
        default="",
        repr=False,
        description="API keys, separated by commas: the entries that `solar key` prints, with "
        "`name@tenant` for a key of a tenant; empty: no authentication, on a loopback address only",
    )
    insecure: bool = Field(
        default=False,
        description="service on a non-loopback address without API keys; if off, `solar serve` "
        "refuses to start there",
    )
    cors: str = Field(
        default="",
        description="origins of web pages that may call the service (CORS), separated by commas; "
        "`*`: all; empty: only pages of the service itself",
    )
    hosts: str = Field(
        default="",
        description="names in the Host header that a service without API keys serves on a "
        "loopback address, besides localhost, 127.0.0.1 and [::1], separated by commas; another "
        "name gets 421",
    )
    redis_url: str = Field(
        default="",
        repr=False,
        description="URL of the Redis or Valkey store; empty: an embedded server is started",
    )
    durability: Literal["", "local", "fsync", "replicated"] = Field(
        default="",
        description="durability level of acknowledged writes: `local`, `fsync` or `replicated`; "
        "a server that gives less is refused at start; empty: a server below `fsync` only causes "
        "a warning; see docs/operations.md#durability-levels",
    )
    data_dir: Path = Field(default=DATA, description="directory of the embedded server's data")
    memory: Size = Field(
        default=GIB,
        description="memory limit of the embedded server, in bytes; a full store refuses "
        "feedback (503)",
    )
    lease: float = Field(
        default=5.0,
        ge=0.001,
        description="lease of a learner on its models, in seconds; after a crash another learner "
        "takes over when it expires",
    )
    default_features: str = Field(
        default="",
        description="features of the model `default`, which its first request creates: names "
        "separated by commas, or a count; empty: the model is not created",
    )
    impression_seconds: float = Field(
        default=1800.0,
        ge=5.0,
        le=2 * DAY,
        description="lifetime of a logged impression, in seconds; later feedback on it is "
        "refused (410, or 404 for a `request_id` chosen by the client)",
    )
    conversion_seconds: float = Field(
        default=21_600.0,
        ge=5.0,
        le=7 * DAY,
        description="lifetime of an impression with a click, and of the tokens of impressions, "
        "in seconds, at least `SOLAR_IMPRESSION_SECONDS`: purchases come late; clicked lists may "
        "use a quarter of the store's memory",
    )
    token_keys: str = Field(
        default="",
        repr=False,
        description="keys that sign the tokens of impressions, separated by commas: the entries "
        "that `solar key --token` prints, the one that signs first; empty: no tokens, and "
        "`/beacon` is 404",
    )
    beacon_rate: float = Field(
        default=20.0,
        ge=0.1,
        le=1e6,
        description="maximum number of events a second at `/beacon` from one address, with a burst "
        "of ten seconds, and a hundred times as many for one worker; above it 429",
    )
    dedupe_seconds: float = Field(
        default=3600.0,
        ge=60.0,
        le=7 * DAY,
        description="window of the deduplication, in seconds: a repeated `event_id` is recognised "
        "for this time, and for at least twice `SOLAR_IMPRESSION_SECONDS`; an event with an older "
        "`time` is refused (422)",
    )
    remember_seconds: float = Field(
        default=0.05,
        ge=0.001,
        le=60.0,
        description="timeout of `/rank` for the turn to store the impression, and then for storing "
        "it, in seconds; after it the answer has `logged: false`",
    )
    wait_seconds: float = Field(
        default=1.0,
        ge=0.0,
        le=60.0,
        description="timeout of `/rank` for reaching `min_seq`, in seconds; after it the answer "
        "is 503",
    )
    body_bytes: Size = Field(
        default=10_000_000, description="size limit of a request body, in bytes; above it 413"
    )
    body_seconds: float = Field(
        default=10.0,
        ge=0.01,
        description="time limit for receiving a request body, in seconds; after it 408",
    )
    documents: int = Field(
        default=1000,
        ge=1,
        le=100_000,
        description="maximum number of documents in one request; above it 422",
    )
    pairs: int = Field(
        default=100_000,
        ge=1,
        le=_MAXIMUM,
        description="maximum number of document pairs from one event; above it 422",
    )
    events: int = Field(
        default=1000,
        ge=1,
        le=2000,
        description="maximum number of events in one feedback request; above it 422",
    )
    numbers: int = Field(
        default=4_000_000,
        ge=1,
        le=1_000_000_000,
        description="maximum number of feature values in one request: documents times features of "
        "the model; above it 413",
    )
    inflight_bytes: Size = Field(
        default=128_000_000,
        description="memory limit of all requests of one worker, in bytes: bodies, decoded "
        "values, rows and impressions; above it 503",
    )
    id_length: int = Field(
        default=128,
        ge=1,
        le=1024,
        description="maximum length of an id, in characters; above it 422",
    )
    feature_bound: float = Field(
        default=1e4,
        ge=0.0,
        le=1e38,
        description="maximum absolute value of a feature, for models without normalization; "
        "above it 422",
    )
    backlog: int = Field(
        default=100_000,
        ge=1,
        le=_MAXIMUM,
        description="backlog limit: maximum number of records of a model that wait for the "
        "learner; above it feedback is refused (503)",
    )
    backlog_work: float = Field(
        default=5e11,
        ge=1e6,
        le=1e15,
        description="backlog limit of work: maximum work of the records of a model that wait for "
        "the learner, in units of about 0.1 ns: by default 20 to 60 s of a core; a pair takes "
        "n² + 200 units for n features with a full covariance, else 8·n + 200, and a record "
        "1,000,000; above it feedback is refused (503)",
    )
    models: int = Field(
        default=5_000,
        ge=1,
        le=_MAXIMUM,
        description="maximum number of models and followers in the store; above it none is "
        "created (409), and existing ones work as before",
    )
    source_share: float = Field(
        default=1.0,
        ge=0.0,
        le=1.0,
        description="maximum share of one API key in the work of the feedback of the last minute "
        "(of one `source`, without keys), counted per worker from the work of 100 small events on; "
        "of k that post, each gets at least 1/k; above it 429; 1: no limit",
    )
    jobs: int = Field(
        default=1,
        ge=1,
        le=64,
        description="maximum number of training jobs at once in one worker; above it 503",
    )
    training_memory: Size = Field(
        default=4 * GIB,
        description="memory limit of one training job, in bytes; above it the job fails",
    )
    shards: str = Field(
        default="",
        description="prefixes of the shards that a training job may name, separated by commas: "
        "absolute paths of directories, or URLs of S3, Google, Azure and web servers such as "
        "`s3://bucket/judged`; empty: none (403)",
    )
    cluster: str = Field(
        default="",
        description="Dask cluster that trains on shards: `tls://HOST:PORT`, `tcp://HOST:PORT` on a "
        "loopback address, `local` or `local:WORKERS`; empty: the process of the job",
    )
    upload_bytes: Size = Field(
        default=GIB,
        description="size limit of uploaded judged data, in bytes after decompression; above it "
        "413",
    )
    upload_seconds: float = Field(
        default=600.0,
        ge=0.01,
        description="time limit for receiving an upload, in seconds; after it 408",
    )
    free_bytes: OptionalSize = Field(
        default=None,
        description="free disk space that an upload must leave, in bytes; below it 507; empty: "
        "1 GiB, or a twentieth of the file system if that is less; 0: no check",
    )
    upload_dir: str = Field(
        default="",
        description="directory of uploads; empty: `uploads` in the data directory",
    )
    check_seconds: float = Field(
        default=10.0,
        ge=0.0,
        le=600.0,
        description="time that the answer to an upload waits for the data check, in seconds; "
        "later errors are in the job",
    )
    access_log: bool = Field(
        default=False,
        description="log line for every request; if off, only for answers 401, 403, 421, 429, 503 "
        "and 507, at most 10 a minute for one route and status",
    )
    console: bool = Field(
        default=True,
        description="web pages of the service itself at `/console/`; if off, `/` and `/console/` "
        "are 404",
    )
    otel: bool = Field(
        default=False,
        description="OpenTelemetry traces of requests; see docs/operations.md#traces",
    )

    @property
    def dedupe_window(self) -> float:
        """Seconds for which a repeated event is recognised."""
        return max(self.dedupe_seconds, 2 * self.impression_seconds)

    @property
    def token_seconds(self) -> float:
        """Seconds for which a token is good: as long as any list is remembered."""
        return max(self.conversion_seconds, self.impression_seconds)

    @property
    def uploads(self) -> Path:
        """Directory of uploads."""
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
        """Use constructor arguments only; `read_settings` reads the environment."""
        return (init_settings,)


#: Variable → field.
VARIABLES = {f"SOLAR_{name.upper()}": name for name in Settings.model_fields}
#: Fields with secrets, which are never printed.
SECRETS = {name for name, field in Settings.model_fields.items() if not field.repr}

ENV_FILE = "SOLAR_ENV_FILE"
CLIENT_KEY = "SOLAR_KEY"
_DEVELOPMENT = "SOLAR_DEV_"  # read by tests and tools only
# Variables that Kubernetes sets for Services.
_SERVICE_LINK = re.compile(
    r"\w+_SERVICE_(HOST|PORT(_\w+)?)|\w+_PORT_[0-9]+_(TCP|UDP|SCTP)(_\w+)?", re.ASCII
)
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")
_FILE_LINE = re.compile(r"\s*(?:export\s+)?(SOLAR_\w*)")


def read_settings(
    environ: Mapping[str, str] | None = None, env_file: str | None = None, **overrides: Any
) -> Settings:
    """Read the effective settings; SolarError names a wrong variable and what was expected."""
    sources = read_sources(environ, env_file, **overrides)
    for problem in sources.problems:
        raise SolarError(problem)
    values: dict[str, Any] = {}
    for given in sources.given.values():
        values |= given
    return Settings(**values)


class Sources(NamedTuple):
    """Settings by source (a later source wins), and problems with variable names."""

    given: dict[str, dict[str, Any]]
    problems: list[str]


def read_sources(
    environ: Mapping[str, str] | None = None, env_file: str | None = None, **overrides: Any
) -> Sources:
    """Read every source of settings; SolarError names a wrong value."""
    given = os.environ if environ is None else environ
    found = Sources({}, [])
    if file := env_file or given.get(ENV_FILE):
        texts = _texts(_file_lines(file), found.problems, f"{file}: ")
        found.given[f"file {file}"] = _parsed(texts, f"{file}: ")
    found.given["environment"] = _parsed(_texts(given, found.problems))
    found.given["flag"] = _parsed(overrides)
    return found


def parse_setting(name: str, text: str) -> Any:
    """Parse the value of one setting; ValueError says what was expected."""
    given: dict[str, Any] = {name: text}
    try:
        return getattr(Settings(**given), name)
    except ValidationError:
        raise ValueError(_type_error(name, text)) from None


def setting_text(name: str, value: Any) -> str:
    """Format a value the way it is written in the environment.

    >>> setting_text("memory", 1 << 30), setting_text("body_bytes", 10_000_000)
    ('1GiB', '10MB')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if is_size(name):
        return _size_text(value)
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _size_text(size: int) -> str:
    for power in (4, 3, 2, 1):
        for base, infix in ((1024, "i"), (1000, "")):
            if size and size % base**power == 0:
                return f"{size // base**power}{'KMGT'[power - 1]}{infix}B"
    return str(size)


def is_size(name: str) -> bool:
    """Check whether a setting is a size in bytes, which accepts units such as `1GiB`."""
    return any(isinstance(one, BeforeValidator) for one in Settings.model_fields[name].metadata)


def _parsed(texts: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    try:
        settings = Settings(**texts)
    except ValidationError as error:
        name = str(error.errors(include_input=False)[0]["loc"][0])
        message = _type_error(name, texts[name])
        raise SolarError(f"{where}SOLAR_{name.upper()}: {message}") from None
    return {name: getattr(settings, name) for name in texts}


def _type_error(name: str, given: object) -> str:
    got = "" if name in SECRETS else f", got {str(given)[:64]!r}"
    return f"expected {_expected(name)}{got}"


def _expected(name: str) -> str:
    """Describe the values that a setting accepts."""
    field = Settings.model_fields[name]
    if field.annotation is bool:
        return "yes or no"
    if is_size(name):
        return "a size in bytes such as 1GiB, 512MB or 1048576"
    if choices := get_args(field.annotation):
        return f"one of {', '.join(filter(None, choices))}, or empty"
    if field.annotation in (str, Path):
        return "text"
    bounds = {
        side: getattr(one, side)
        for one in field.metadata
        for side in ("ge", "le")
        if hasattr(one, side)
    }
    minimum, maximum = bounds["ge"], bounds.get("le", _MAXIMUM)
    kind = "a whole number" if field.annotation is int else "a number"
    if maximum == _MAXIMUM:
        return f"{kind} of at least {minimum:.15g}"
    return f"{kind} from {minimum:.15g} to {maximum:.15g}"


def _texts(given: Mapping[str, str], problems: list[str], where: str = "") -> dict[str, Any]:
    """Select texts by field; unknown names, which pydantic-settings ignores, become problems."""
    solar = {name: text for name, text in given.items() if name.startswith("SOLAR_")}
    wrong = {name: found for name, text in solar.items() if (found := _name_problem(name, text))}
    problems += [f"{where}{name}: {problem}" for name, problem in wrong.items()]
    source = EnvSettingsSource(Settings)
    known = VARIABLES.keys() & solar.keys() - wrong.keys()
    source.env_vars = {name.lower(): solar[name] for name in known}
    return source()


def _name_problem(name: str, text: str) -> str | None:
    """Describe the problem with a variable's name; None if there is none."""
    is_address = _SERVICE_ADDRESS.match(text)
    if name == "SOLAR_PORT" and is_address:
        return (
            "expected a port, got an address that Kubernetes sets for a Service named solar; "
            "set enableServiceLinks: false in the pod"
        )
    known = [*VARIABLES, ENV_FILE, CLIENT_KEY]
    if name in known or name.startswith(_DEVELOPMENT):
        return None
    if _SERVICE_LINK.fullmatch(name) or (name.endswith("_PORT") and is_address):
        return None
    short = [
        one.removeprefix("SOLAR_") for one in known
    ]  # the common prefix would make all names similar
    near = get_close_matches(name.removeprefix("SOLAR_").upper(), short, n=1)
    hint = f"did you mean SOLAR_{near[0]}?" if near else "`solar config` lists all settings"
    return f"unknown setting; {hint}"


def _file_lines(file: str) -> dict[str, str]:
    """Read the `SOLAR_…` lines of an env file; SolarError if that fails."""
    try:
        with Path(file).open(encoding="utf-8-sig") as opened:
            lines = list(parse_stream(opened))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "expected UTF-8"
        raise SolarError(f"{file}: {reason}; check --env-file or {ENV_FILE}") from None
    found = {}
    for line in lines:
        matched = _FILE_LINE.match(line.original.string)
        if matched is None:
            continue
        if line.key is None or line.value is None:
            name = matched[1]
            raise SolarError(f"{file}: {name}: expected {name}=VALUE, with closed quotes")
        found[line.key] = line.value
    return found
