"""Settings: values, names, sources, secrets, and the messages for wrong ones."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app import config
from app.cli.config import without_secrets
from app.config import GIB, VARIABLES, Settings, setting_text
from app.errors import SolarError
from tests.commands import solar

ROOT = Path(__file__).parents[1]


def env_file(folder: Path, text: str) -> str:
    path = folder / "solar.env"
    path.write_text(text)
    return str(path)


def refused(environ: dict[str, str], file: str | None = None) -> str:
    """The one-line message for invalid settings."""
    with pytest.raises(SolarError) as caught:
        config.read_settings(environ, file)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ---- values ----


def test_defaults_apply_without_variables() -> None:
    found = config.read_settings({})
    assert (found.host, found.port, found.redis_url) == ("127.0.0.1", 8000, "")
    assert (found.data_dir, found.memory, found.lease) == (Path("data"), GIB, 5.0)
    assert config.read_settings({"PATH": "/bin"}) == found == Settings()


def test_every_variable_is_read() -> None:
    given: dict[str, tuple[str, object]] = {
        "SOLAR_HOST": ("0.0.0.0", "0.0.0.0"),  # noqa: S104
        "SOLAR_PORT": ("8080", 8080),
        "SOLAR_WORKERS": ("4", 4),
        "SOLAR_LEARNER": ("no", False),
        "SOLAR_KEYS": ("name:rank:00", "name:rank:00"),
        "SOLAR_INSECURE": ("true", True),
        "SOLAR_CORS": ("https://shop.example", "https://shop.example"),
        "SOLAR_CONSOLE": ("no", False),
        "SOLAR_HOSTS": ("solar.internal", "solar.internal"),
        "SOLAR_REDIS_URL": ("redis://localhost", "redis://localhost"),
        "SOLAR_DURABILITY": ("replicated", "replicated"),
        "SOLAR_DATA_DIR": ("/var/lib/solar", Path("/var/lib/solar")),
        "SOLAR_MEMORY": ("1048576", 1 << 20),
        "SOLAR_LEASE": ("2.5", 2.5),
        "SOLAR_DEDUPE_SECONDS": ("7200", 7200.0),
        "SOLAR_DEFAULT_FEATURES": ("bm25,price", "bm25,price"),
        "SOLAR_IMPRESSION_SECONDS": ("60", 60.0),
        "SOLAR_CONVERSION_SECONDS": ("600", 600.0),
        "SOLAR_TOKEN_KEYS": ("k1:AAAA", "k1:AAAA"),
        "SOLAR_BEACON_RATE": ("2.5", 2.5),
        "SOLAR_REMEMBER_SECONDS": ("0.1", 0.1),
        "SOLAR_WAIT_SECONDS": ("0.5", 0.5),
        "SOLAR_BODY_BYTES": ("1000", 1000),
        "SOLAR_BODY_SECONDS": ("3", 3.0),
        "SOLAR_DOCUMENTS": ("50", 50),
        "SOLAR_PAIRS": ("500", 500),
        "SOLAR_SHARDS": ("/srv/shards", "/srv/shards"),
        "SOLAR_CLUSTER": ("local:2", "local:2"),
        "SOLAR_EVENTS": ("10", 10),
        "SOLAR_NUMBERS": ("2000", 2000),
        "SOLAR_INFLIGHT_BYTES": ("64MB", 64_000_000),
        "SOLAR_ID_LENGTH": ("64", 64),
        "SOLAR_FEATURE_BOUND": ("100", 100.0),
        "SOLAR_BACKLOG": ("7", 7),
        "SOLAR_BACKLOG_WORK": ("2e9", 2e9),
        "SOLAR_MODELS": ("9", 9),
        "SOLAR_SOURCE_SHARE": ("0.5", 0.5),
        "SOLAR_JOBS": ("2", 2),
        "SOLAR_TRAINING_MEMORY": ("1GiB", 1 << 30),
        "SOLAR_UPLOAD_BYTES": ("2000", 2000),
        "SOLAR_UPLOAD_SECONDS": ("30", 30.0),
        "SOLAR_FREE_BYTES": ("2GiB", 2 << 30),
        "SOLAR_UPLOAD_DIR": ("/srv/solar", "/srv/solar"),
        "SOLAR_CHECK_SECONDS": ("1", 1.0),
        "SOLAR_ACCESS_LOG": ("1", True),
        "SOLAR_OTEL": ("yes", True),
    }
    assert set(given) == set(VARIABLES)
    found = config.read_settings({name: text for name, (text, _) in given.items()})
    for name, (_, value) in given.items():
        assert getattr(found, VARIABLES[name]) == value
        assert getattr(Settings(), VARIABLES[name]) != value


def test_every_field_has_a_variable_and_a_description() -> None:
    assert set(VARIABLES.values()) == set(Settings.model_fields)
    assert all(field.description for field in Settings.model_fields.values())


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1GiB", 1 << 30), ("1gib", 1 << 30), ("2 MiB", 2 << 20), ("512MB", 512_000_000),
        ("3kB", 3000), ("1TiB", 1 << 40), ("10_000_000", 10_000_000), ("7", 7), (" 1KiB ", 1024),
    ],
)  # fmt: skip
def test_a_size_may_have_a_unit(text: str, size: int) -> None:
    assert config.read_settings({"SOLAR_MEMORY": text}).memory == size


def test_an_optional_size_may_be_empty_or_0() -> None:
    for text, size in (("", None), ("0", 0), ("5GiB", 5 << 30)):
        found = config.read_settings({"SOLAR_FREE_BYTES": text}).free_bytes
        assert found == size
        assert setting_text("free_bytes", found) == text


@given(st.integers(1, 1 << 50))
def test_a_printed_size_parses_to_the_same_value(size: int) -> None:
    text = setting_text("memory", size)
    assert config.read_settings({"SOLAR_MEMORY": text}).memory == size


@pytest.mark.parametrize("text", ["true", "TRUE", "1", "yes", "Yes"])
def test_a_boolean_setting_accepts_several_spellings_of_true(text: str) -> None:
    assert config.read_settings({"SOLAR_INSECURE": text}).insecure is True


@pytest.mark.parametrize("text", ["false", "FALSE", "0", "no", "No"])
def test_a_boolean_setting_accepts_several_spellings_of_false(text: str) -> None:
    assert config.read_settings({"SOLAR_LEARNER": text}).learner is False


SIZE = "a size in bytes such as 1GiB, 512MB or 1048576"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("SOLAR_MEMORY", "1G", SIZE),
        ("SOLAR_MEMORY", "1GiB!", SIZE),
        ("SOLAR_MEMORY", "1,073,741,824", SIZE),
        ("SOLAR_MEMORY", "0.5GiB", SIZE),
        ("SOLAR_MEMORY", "0GiB", SIZE),
        ("SOLAR_MEMORY", "9999999999TiB", SIZE),
        ("SOLAR_MEMORY", "9" * 5000 + "GiB", SIZE),
        ("SOLAR_MEMORY", "", SIZE),
        ("SOLAR_MEMORY", "0", SIZE),
        ("SOLAR_MEMORY", "-1", SIZE),
        ("SOLAR_PAIRS", str((1 << 62) + 1), "a whole number of at least 1"),
        ("SOLAR_LEASE", "soon", "a number of at least 0.001"),
        ("SOLAR_LEASE", "0", "a number of at least 0.001"),
        ("SOLAR_LEASE", "-5", "a number of at least 0.001"),
        ("SOLAR_LEASE", "nan", "a number of at least 0.001"),
        ("SOLAR_LEASE", "inf", "a number of at least 0.001"),
        ("SOLAR_LEASE", "1e400", "a number of at least 0.001"),
        ("SOLAR_DURABILITY", "always", "one of local, fsync, replicated, or empty"),
        ("SOLAR_PORT", "65536", "a whole number from 0 to 65535"),
        ("SOLAR_PORT", "80.5", "a whole number from 0 to 65535"),
        ("SOLAR_LEARNER", "perhaps", "yes or no"),
        ("SOLAR_IMPRESSION_SECONDS", "4.9", "a number from 5 to 172800"),
        ("SOLAR_IMPRESSION_SECONDS", "172801", "a number from 5 to 172800"),
        ("SOLAR_FEATURE_BOUND", "2e38", "a number from 0 to 1e+38"),
        ("SOLAR_SOURCE_SHARE", "1.1", "a number from 0 to 1"),
    ],
)
def test_an_invalid_value_is_refused_with_its_name(name: str, value: str, expected: str) -> None:
    assert refused({name: value}) == f"{name}: expected {expected}, got {value[:64]!r}"


def test_the_constructor_does_not_read_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOLAR_PORT", "1")
    assert Settings().port == 8000
    assert config.read_settings().port == 1
    with pytest.raises(ValidationError):
        Settings().port = 1


# ---- names ----


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("SOLAR_REDIS_ULR", "did you mean SOLAR_REDIS_URL?"),
        ("SOLAR_PROT", "did you mean SOLAR_PORT?"),
        ("SOLAR_port", "did you mean SOLAR_PORT?"),
        ("SOLAR_ENVFILE", "did you mean SOLAR_ENV_FILE?"),
        ("SOLAR_FOO", "`solar config` lists all settings"),
        ("SOLAR_", "`solar config` lists all settings"),
    ],
)
def test_an_unknown_name_is_an_error_that_suggests_the_nearest_name(
    tmp_path: Path, name: str, hint: str
) -> None:
    assert refused({name: "secret"}) == f"{name}: unknown setting; {hint}"
    file = env_file(tmp_path, f"{name}=secret\n")
    assert refused({}, file) == f"{file}: {name}: unknown setting; {hint}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SOLAR_KEY", "x"),
        ("SOLAR_DEV_ANYTHING", "x"),
        ("solar_port", "x"),
        ("MY_SOLAR_PORT", "x"),
        ("SOLAR_SERVICE_HOST", "10.0.0.1"),
        ("SOLAR_REDIS_SERVICE_HOST", "10.0.0.1"),
        ("SOLAR_SERVICE_PORT", "8000"),
        ("SOLAR_API_SERVICE_PORT_HTTP", "8000"),
        ("SOLAR_PORT_8000_TCP", "tcp://10.0.0.1:8000"),
        ("SOLAR_PORT_8000_TCP_ADDR", "10.0.0.1"),
        ("SOLAR_API_PORT_53_UDP_PROTO", "udp"),
        ("SOLAR_REDIS_PORT", "tcp://10.0.0.1:6379"),
    ],
)
def test_variables_of_clients_tools_and_kubernetes_are_ignored(name: str, value: str) -> None:
    assert config.read_settings({name: value}) == Settings()


def test_a_port_variable_without_a_kubernetes_address_is_an_unknown_name() -> None:
    assert "unknown setting" in refused({"SOLAR_REDIS_PORT": "6379"})


def test_a_kubernetes_address_in_solar_port_is_refused_with_the_remedy() -> None:
    assert refused({"SOLAR_PORT": "tcp://10.0.0.1:8000"}) == (
        "SOLAR_PORT: expected a port, got an address that Kubernetes sets for a Service named "
        "solar; set enableServiceLinks: false in the pod"
    )


FOLDERS = ("app", "benchmarks", "docker", "docs", "k8s", "ops", "tests", "tools")
KINDS = {"", ".conf", ".env", ".json", ".md", ".py", ".sh", ".yaml", ".yml"}
REDIS = {"SOLAR_PASSWORD"}  # a variable of the Redis container
MISSPELT = {"SOLAR_PROT"}  # in docs/troubleshooting.md, on purpose


def test_every_name_in_the_repository_is_a_setting_or_ignored() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    files += [ROOT / name for name in ("Makefile", "docker-compose.yml", "README.md")]
    names: set[str] = set()
    for path in files:
        if path.is_file() and path.suffix in KINDS and path != Path(__file__):
            names |= set(re.findall(r"\bSOLAR_[A-Z0-9_]*[A-Z0-9]\b", path.read_text()))
    assert set(VARIABLES) | REDIS | MISSPELT <= names
    others = names - set(VARIABLES) - REDIS - MISSPELT - {"SOLAR_ENV_FILE"}
    assert config.read_settings(dict.fromkeys(others, "1")) == Settings()


# ---- sources ----


def test_precedence_is_flag_then_environment_then_file_then_default(
    tmp_path: Path,
) -> None:
    file = env_file(tmp_path, "SOLAR_PORT=1\nSOLAR_JOBS=2\nSOLAR_EVENTS=3\n")
    environ = {"SOLAR_PORT": "4", "SOLAR_JOBS": "5", "SOLAR_ENV_FILE": file}
    found = config.read_settings(environ, port=6)
    assert (found.port, found.jobs, found.events, found.pairs) == (6, 5, 3, 100_000)


def test_the_env_file_flag_wins_over_the_env_file_variable(tmp_path: Path) -> None:
    file = env_file(tmp_path, "SOLAR_PORT=1\n")
    assert config.read_settings({"SOLAR_ENV_FILE": "/nowhere"}, file).port == 1
    assert config.read_settings({"SOLAR_ENV_FILE": ""}).port == 8000


def test_an_env_file_has_the_usual_syntax_and_other_lines_are_ignored(tmp_path: Path) -> None:
    text = """\ufeffSOLAR_HOST='::1'
        # SOLAR_NOTHING=1
        REDIS_PASSWORD=hunter2
        no line "of any kind
        export SOLAR_PORT = 9  # a comment
        SOLAR_KEYS="a:rank:00,b:rank:00"
        SOLAR_CORS=${REDIS_PASSWORD}
    """
    found = config.read_settings({}, env_file(tmp_path, text))
    assert (found.host, found.port, found.keys) == ("::1", 9, "a:rank:00,b:rank:00")
    assert found.cors == "${REDIS_PASSWORD}"


def test_no_env_file_is_read_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("SOLAR_PORT=1\n")
    monkeypatch.chdir(tmp_path)
    assert config.read_settings({}).port == 8000


def test_an_unreadable_env_file_is_a_one_line_error(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    remedy = "check --env-file or SOLAR_ENV_FILE"
    assert refused({}, missing) == f"{missing}: No such file or directory; {remedy}"
    assert refused({"SOLAR_ENV_FILE": missing}) == refused({}, missing)
    assert refused({}, str(tmp_path)) == f"{tmp_path}: Is a directory; {remedy}"
    (tmp_path / "latin").write_bytes(b"SOLAR_HOST=\xe4\n")
    assert refused({}, str(tmp_path / "latin")) == f"{tmp_path}/latin: expected UTF-8; {remedy}"


@pytest.mark.parametrize("line", ["SOLAR_KEYS='hunter2", "SOLAR_KEYS", "SOLAR_KEYS hunter2"])
def test_an_invalid_line_of_an_env_file_is_refused_without_its_value(
    tmp_path: Path, line: str
) -> None:
    file = env_file(tmp_path, f"SOLAR_PORT=1\n\n{line}\nSOLAR_JOBS=1\n")
    assert refused({}, file) == f"{file}: SOLAR_KEYS: expected SOLAR_KEYS=VALUE, with closed quotes"


def test_a_wrong_value_in_an_env_file_is_refused_with_the_file(tmp_path: Path) -> None:
    file = env_file(tmp_path, "SOLAR_PORT=abc\n")
    assert refused({}, file).startswith(f"{file}: SOLAR_PORT: expected a whole number")


# ---- secrets ----

SECRET = {
    "SOLAR_REDIS_URL": "redis://solar:hunter2@redis:6379/0",
    "SOLAR_KEYS": "web:rank+feedback:hunter2,hunter2",
}


def test_neither_repr_nor_errors_contain_secrets() -> None:
    assert "hunter2" not in repr(config.read_settings(SECRET))
    assert "hunter2" not in refused({**SECRET, "SOLAR_PORT": "abc"})
    with pytest.raises(ValidationError) as caught:
        Settings(keys=["hunter2"])  # type: ignore[arg-type]
    assert "hunter2" not in str(caught.value)
    with pytest.raises(SolarError, match=r"^SOLAR_KEYS: expected text$"):
        config.read_settings({}, keys=["hunter2"])


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://redis:6379/0", "redis://redis:6379/0"),
        ("unix:///run/valkey.sock", "unix:///run/valkey.sock"),
        ("redis://solar:hunter2@redis", "redis://solar:***@redis"),
        ("redis://:hunter2@redis", "redis://:***@redis"),
        ("redis://solar:hun/ter2:@hunter2@redis", "redis://solar:***@redis"),
        ("solar:hunter2@redis:6379", "solar:***@redis:6379"),
        ("redis+cluster://solar:hunter2@[::1]:1,b:2", "redis+cluster://solar:***@[::1]:1,b:2"),
        (
            "rediss+sentinel://s:hunter2@a:1,b:2/m?sentinel_password=hunter2&db=1",
            "rediss+sentinel://s:***@a:1,b:2/m?sentinel_password=***&db=1",
        ),
        ("redis://h/0?password=hunter2", "redis://h/0?password=***"),
    ],
)
def test_a_url_is_printed_without_passwords(url: str, shown: str) -> None:
    assert without_secrets("redis_url", url) == shown


# ---- solar config ----


def test_solar_config_prints_values_with_sources_and_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "SOLAR_MEMORY=512MB\nSOLAR_JOBS=3\nSOLAR_KEYS='web:rank+feedback:hunter2, hunter2'\n"
    file = env_file(tmp_path, text)
    monkeypatch.setenv("SOLAR_JOBS", "4")
    monkeypatch.setenv("SOLAR_REDIS_URL", SECRET["SOLAR_REDIS_URL"])
    words = ["config", "--env-file", file, "--port", "9", "--no-learner"]
    assert solar(*words) == 2  # the keys are invalid; they are printed anyway
    output, error = capsys.readouterr()
    assert "hunter2" not in output + error
    rows = dict(re.split("  +", line, maxsplit=1) for line in output.splitlines())
    assert {name: re.split("  +", rest) for name, rest in rows.items()}.items() >= {
        "SETTING": ["VALUE", "FROM"],
        "SOLAR_PORT": ["9", "flag"],
        "SOLAR_LEARNER": ["no", "flag"],
        "SOLAR_JOBS": ["4", "environment SOLAR_JOBS"],
        "SOLAR_MEMORY": ["512MB", f"file {file}"],
        "SOLAR_KEYS": ["web:rank+feedback:***,***", f"file {file}"],
        "SOLAR_REDIS_URL": ["redis://solar:***@redis:6379/0", "environment SOLAR_REDIS_URL"],
        "SOLAR_LEASE": ["5", "default"],
        "SOLAR_BODY_BYTES": ["10MB", "default"],
    }.items()  # fmt: skip
    assert list(rows) == ["SETTING", *VARIABLES]
    assert solar(*words, "--json") == 2
    output, error = capsys.readouterr()
    assert "hunter2" not in output + error
    found = json.loads(output)
    assert list(found) == list(Settings.model_fields)
    assert found["port"] == {"value": 9, "from": "flag"}
    assert found["memory"] == {"value": 512_000_000, "from": f"file {file}"}
    assert found["data_dir"] == {"value": "data", "from": "default"}


def test_invalid_settings_are_a_one_line_error_of_every_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOLAR_REDIS_ULR", "x")
    message = "SOLAR_REDIS_ULR: unknown setting; did you mean SOLAR_REDIS_URL?"
    for command in (["config"], ["serve"], ["verify"], ["train", "x", "--output", "y"]):
        assert solar(*command) == 2
        assert capsys.readouterr().err == f"solar: {message}\n"


def test_solar_config_prints_all_settings_and_all_unknown_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOLAR_FOO", "x")
    monkeypatch.setenv("SOLAR_PORT", "tcp://10.0.0.1:8000")
    assert solar("config") == 2
    output, error = capsys.readouterr()
    assert all(f"{name} " in output for name in VARIABLES)
    assert "SOLAR_FOO: unknown setting; `solar config` lists all settings" in error
    assert "SOLAR_PORT: expected a port, got an address that Kubernetes sets" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("flag", "text", "expected"),
    [
        ("--port", "abc", "a whole number from 0 to 65535"),
        ("--port", "70000", "a whole number from 0 to 65535"),
        ("--memory", "much", SIZE),
        ("--durability", "always", "one of local, fsync, replicated, or empty"),
        ("--source-share", "nan", "a number from 0 to 1"),
    ],
)
def test_a_wrong_flag_is_one_error_line_and_a_pointer_to_the_help(
    capsys: pytest.CaptureFixture[str], flag: str, text: str, expected: str
) -> None:
    with pytest.raises(SystemExit):
        solar("serve", flag, text)
    assert capsys.readouterr().err == (
        f"solar serve: argument {flag}: expected {expected}, got {text!r}\nsee solar serve --help\n"
    )


def test_every_command_with_a_store_accepts_an_env_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOLAR_FOO", "x")  # prevents every command from starting
    missing = str(tmp_path / "missing")
    commands = [["serve"], ["config"], ["learn"], ["log", "m"], ["replay", "m"], ["verify"]]
    for command in [*commands, ["train", "x", "--model", "m"], ["train", "x", "--output", "y"]]:
        assert solar(*command, "--env-file", missing) == 2
        assert capsys.readouterr().err.startswith(f"solar: {missing}: No such file")


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        (("--keys", "a:b:c"), "SOLAR_KEYS: expected name:scope+scope:hash"),
        (("--redis-url", "http://x"), "store URL: expected one of redis://"),
        (("--default-features", "a,a"), "features: expected unique names"),
    ],
)
def test_solar_config_prints_settings_before_it_refuses_invalid_ones(
    flag: tuple[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert solar("config", *flag) == 2
    printed = capsys.readouterr()
    assert "SOLAR_KEYS" in printed.out
    assert printed.err.startswith(f"solar: {message}")


def test_an_unknown_scope_is_refused_without_creating_a_key(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert solar("key", "shop", "--scopes", "rank+bogus") == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (
        "",
        "solar: --scopes: expected rank, feedback, read, admin, joined by +\n",
    )
