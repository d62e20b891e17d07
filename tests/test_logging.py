"""Log lines: one JSON object with message, trace and code location, without values."""

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from app.errors import BadData
from app.observability import tracebacks
from app.observability.logging import JsonFormatter
from app.observability.tracing import read_traceparent, traceparent
from tests.commands import logging_put_back

SECRET = "correct-horse-battery-staple"  # noqa: S105  # not in use
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def line_of(error: BaseException | None = None, message: str = "x", **extra: Any) -> Any:
    """Return the parsed line of a record; check that it is one short line."""
    about = (type(error), error, error.__traceback__) if error else None
    record = logging.LogRecord("solar", logging.ERROR, "f.py", 1, message, (), about)
    vars(record).update(extra)
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert len(line.encode()) < 16_384
    return json.loads(line)


def raised(work: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011  # any will do
        work()
    return caught.value


def broken(value: str) -> None:
    raise ValueError(
        f"expected nothing that has a name as long as the line is, got {value!r}, which is too much"
    )


def wrapped() -> None:
    try:
        broken(SECRET)
    except ValueError as error:
        raise BadData(f"upload:2: {error}") from error


def failed_again() -> None:
    try:
        broken(SECRET)
    except ValueError:
        dict[str, int]()[SECRET]


async def _one_of_two_fails() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(0))
        group.create_task(asyncio.to_thread(broken, SECRET))


async def failing() -> None:
    broken(SECRET)


def group_failed() -> None:
    asyncio.run(_one_of_two_fails())


def noted() -> None:
    error = ValueError(SECRET)
    error.add_note(SECRET)
    raise error


def recurse(depth: int) -> None:
    if depth:
        recurse(depth - 1)
    broken(SECRET)


def chain(length: int) -> None:
    error: BaseException = ValueError(SECRET)
    for _ in range(length):
        error, before = ValueError(SECRET), error
        error.__cause__ = before
    raise error


def circle() -> None:
    one, other = ValueError(SECRET), KeyError(SECRET)
    one.__cause__, other.__cause__ = other, one
    raise one


def large_group() -> None:
    raise ExceptionGroup(SECRET, [ValueError(SECRET) for _ in range(1000)])


def deep_group() -> None:
    error: Exception = ValueError(SECRET)
    for _ in range(300):
        error = ExceptionGroup(SECRET, [error])
    raise error


def test_a_bug_is_logged_with_its_type_location_and_statement() -> None:
    line = line_of(raised(wrapped), message="a training failed")
    assert (line["message"], line["error"]) == ("a training failed", "BadData")
    of_cause, of_error = line["traceback"].split(tracebacks._CAUSE)
    first = broken.__code__.co_firstlineno + 1
    said = f"""
  File "tests/test_logging.py", line {first}, in broken
    raise ValueError( f"expected nothing that has a name as long as the line is, got {{value!r}}, \
which is too much" )
ValueError
"""
    assert of_cause.endswith(said)
    assert 'raise BadData(f"upload:2: {error}") from error\napp.errors.BadData' in of_error


def test_file_names_are_relative_to_their_package() -> None:
    found = line_of(raised(lambda: asyncio.run(failing())))["traceback"]
    assert 'File "asyncio/runners.py"' in found
    found = line_of(raised(lambda: pytest.fail("x")))["traceback"]
    assert 'File "_pytest/outcomes.py"' in found
    code = compile("1 / 0", "/somewhere/else/script.py", "exec")
    found = line_of(raised(lambda: exec(code)))["traceback"]  # noqa: S102
    assert 'File "script.py", line 1, in <module>\nZeroDivisionError' in found


def test_the_context_of_an_error_is_shown_unless_it_is_suppressed() -> None:
    found = line_of(raised(failed_again))["traceback"]
    assert found.split(tracebacks._CONTEXT)[0].endswith("\nValueError\n")
    assert found.endswith("\nKeyError")
    error = raised(failed_again)
    error.__suppress_context__ = True
    assert "ValueError" not in line_of(error)["traceback"]


def test_the_traceback_of_an_exception_group_shows_its_members() -> None:
    line = line_of(raised(group_failed))
    assert line["error"] == "ExceptionGroup"
    assert "\nExceptionGroup\n  | Traceback (most recent call last):\n" in line["traceback"]
    assert line["traceback"].endswith("\n  | ValueError")
    assert ", in broken\n" in line["traceback"]


@pytest.mark.parametrize(
    "work",
    [
        wrapped, failed_again, group_failed, noted, circle, large_group, deep_group,
        lambda: recurse(900), lambda: chain(1000), lambda: compile(f"{SECRET} =", SECRET, "exec"),
        lambda: f"{SECRET}é".encode().decode("ascii"), lambda: getattr(1, SECRET),
        lambda: int(SECRET), lambda: open(f"/{SECRET}"),  # noqa: PTH123, SIM115
    ],
)  # fmt: skip
def test_no_line_repeats_a_value_or_grows_without_bound(work: Callable[[], object]) -> None:
    line = line_of(raised(work))
    assert SECRET not in json.dumps(line)
    assert 'File "tests/test_logging.py", line ' in line["traceback"]


def test_a_deep_recursion_shows_its_first_and_last_frames() -> None:
    found = line_of(raised(lambda: recurse(900)))["traceback"]
    assert found.count(", in recurse\n") == tracebacks.LAST_FRAMES - 1 + 3
    assert "\n  [879 frames]\n" in found
    assert found.endswith("\nValueError")


def test_a_long_traceback_keeps_its_start_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = line_of(raised(wrapped))["traceback"]
    monkeypatch.setattr(tracebacks, "MAX_CHARACTERS", 100)
    cut = line_of(raised(wrapped))["traceback"]
    assert cut == f"{whole[:50]}\n[{len(whole) - 100} characters]\n{whole[-50:]}"


def test_extra_fields_are_in_the_line_except_uvicorns_colours() -> None:
    line = line_of(route="/rank", color_message="red")
    assert line["route"] == "/rank"
    assert {"traceback", "error", "color_message", "traceparent"}.isdisjoint(line)


def test_the_traceparent_of_a_caller_is_in_every_line_of_its_request() -> None:
    async def request(header: bytes) -> Any:
        traceparent.set(read_traceparent(header))
        await asyncio.sleep(0)
        return await asyncio.to_thread(line_of)

    async def requests() -> list[Any]:
        return await asyncio.gather(*map(request, (PARENT.encode(), b"", b"00-x-y-01")))

    lines = asyncio.run(requests())
    assert [line.get("traceparent") for line in lines] == [PARENT, None, None]


@pytest.mark.parametrize(
    ("header", "good"),
    [
        (PARENT, True),
        (PARENT[:-2] + "00", True),
        ("cc" + PARENT[2:], True),  # a future version of the same format
        ("", False),
        ("ff" + PARENT[2:], False),
        (PARENT.upper(), False),
        (PARENT + "-more", False),
        (PARENT + "\n", False),
        (" " + PARENT, False),
        (PARENT[:-1], False),
        (PARENT.replace("-", "_"), False),
        ("00-" + 32 * "0" + PARENT[35:], False),
        (PARENT[:36] + 16 * "0" + "-01", False),
        (PARENT[:36] + 16 * "ä" + "-01", False),
        (1000 * PARENT, False),
    ],
)
def test_a_malformed_traceparent_is_ignored(header: str, good: bool) -> None:
    assert read_traceparent(header.encode()) == (header if good else "")


CRASHING = f"""
import asyncio, logging, uvicorn
from app.observability.logging import configure_logging

async def lost():
    raise ValueError("{SECRET}")

async def application(scope, receive, send):
    asyncio.ensure_future(lost())
    await asyncio.sleep(0)
    raise KeyError("{SECRET}")

async def main():
    server = uvicorn.Server(uvicorn.Config(application, port=0, lifespan="off", log_config=None))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\\r\\nhost: x\\r\\nconnection: close\\r\\n\\r\\n")
    assert b" 500 " in await reader.readline()
    writer.close()
    server.should_exit = True
    await serving

configure_logging()
asyncio.run(main())
"""


def test_crash_logs_of_uvicorn_and_asyncio_have_a_traceback_and_no_values() -> None:
    ran = subprocess.run([sys.executable, "-c", CRASHING], capture_output=True, check=True)
    lines = [json.loads(line) for line in ran.stderr.splitlines()]
    found = {line["message"]: line for line in lines}
    assert found["Exception in ASGI application"]["error"] == "KeyError"
    assert ", in application\n" in found["Exception in ASGI application"]["traceback"]
    assert found["Task exception was never retrieved"]["error"] == "ValueError"
    assert SECRET.encode() not in ran.stderr


def test_a_logger_writes_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_put_back():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonFormatter())
        logging.basicConfig(handlers=[handler], force=True)
        try:
            broken(SECRET)
        except ValueError:
            logging.getLogger("solar").exception("it broke")
    line = json.loads(capsys.readouterr().err)
    assert (line["logger"], line["message"], line["error"]) == ("solar", "it broke", "ValueError")
