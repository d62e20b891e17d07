"""Tracebacks for the log: types and code lines, never values.

The message, notes and frame locals of an exception may hold input or a secret. So none is written,
not even of this package's errors: `BadData` repeats its input, and others repeat messages of
libraries. The statement that raises an error shows the words of its message.
"""

import linecache
import sysconfig
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType

MAX_ERRORS = 10  # causes and group members in one traceback
FIRST_FRAMES, LAST_FRAMES = 5, 20  # shown for one error
STATEMENT_LINES, STATEMENT_CHARACTERS = 4, 200
MAX_CHARACTERS = 8_000  # of one traceback; container runtimes split log lines at 16 kB

_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"
#: Package directories; the first match is removed from a file name.
_FOLDERS = (
    *(f"{sysconfig.get_path(name)}/" for name in ("purelib", "platlib")),
    f"{Path(__file__).parents[2]}/",
    f"{sysconfig.get_path('stdlib')}/",
)


def format_traceback(error: BaseException) -> str:
    """Return the traceback of an error, its causes, and the members of a group."""
    text = "\n".join(_lines(error, set()))
    if len(text) <= MAX_CHARACTERS:
        return text
    half = MAX_CHARACTERS // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters]\n{text[-half:]}"


def _lines(error: BaseException, seen: set[int]) -> Iterator[str]:
    seen.add(id(error))
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None and id(before) not in seen and len(seen) < MAX_ERRORS:
        yield from _lines(before, seen)
        yield _CAUSE if error.__cause__ else _CONTEXT
    yield "Traceback (most recent call last):"
    yield from _frames(error.__traceback__)
    yield _name(type(error))
    members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for at, member in enumerate(members):
        if len(seen) >= MAX_ERRORS:
            yield f"  | [{len(members) - at} more]"
            return
        yield from (f"  | {line}" for line in _lines(member, seen))


def _frames(trace: TracebackType | None) -> Iterator[str]:
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    left_out = len(frames) - FIRST_FRAMES - LAST_FRAMES
    for at, frame in enumerate(frames):
        if at == FIRST_FRAMES and left_out > 0:
            yield f"  [{left_out} frames]"
        if at < FIRST_FRAMES or at >= len(frames) - LAST_FRAMES:
            yield from _frame(frame)


def _frame(trace: TracebackType) -> Iterator[str]:
    code, line = trace.tb_frame.f_code, trace.tb_lineno
    yield f'  File "{_file(code.co_filename)}", line {line}, in {code.co_name}'
    positions = next(islice(code.co_positions(), trace.tb_lasti // 2, None), (line,) * 4)
    last = min(positions[1] or line, line + STATEMENT_LINES - 1)
    lines = (linecache.getline(code.co_filename, at).strip() for at in range(line, last + 1))
    if statement := " ".join(lines).strip():
        yield f"    {statement[:STATEMENT_CHARACTERS]}"


def _file(path: str) -> str:
    """Return a file name relative to its package directory, else its last part."""
    found = (path.removeprefix(folder) for folder in _FOLDERS if path.startswith(folder))
    return next(found, path.rpartition("/")[2])


def _name(kind: type[BaseException]) -> str:
    module = kind.__module__
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"
