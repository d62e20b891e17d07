"""Tracebacks for the log: types and code lines, never values.

An exception's message, its notes and the locals of its frames may repeat what a caller sent, or a
secret. None is written, not even of our own errors: `BadData` repeats what came, and others repeat
messages of libraries. The words of a message are in the statement that raises it, which is shown.
"""

import linecache
import sysconfig
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType

ERRORS = 10  # of one traceback: causes and members of groups
FIRST_FRAMES, LAST_FRAMES = 5, 20  # of one error
STATEMENT_LINES, STATEMENT_CHARACTERS = 4, 200
CHARACTERS = 8_000  # of one traceback: container runtimes cut a log's line at 16 kB

_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"
#: Where packages are; the first that fits is left out of a file's name.
_FOLDERS = (
    *(f"{sysconfig.get_path(name)}/" for name in ("purelib", "platlib")),
    f"{Path(__file__).parents[2]}/",
    f"{sysconfig.get_path('stdlib')}/",
)


def format_traceback(error: BaseException) -> str:
    """The traceback of an error, of its causes, and of the members of a group."""
    text = "\n".join(_lines(error, set()))
    if len(text) <= CHARACTERS:
        return text
    half = CHARACTERS // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters]\n{text[-half:]}"


def _lines(error: BaseException, seen: set[int]) -> Iterator[str]:
    seen.add(id(error))
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None and id(before) not in seen and len(seen) < ERRORS:
        yield from _lines(before, seen)
        yield _CAUSE if error.__cause__ else _CONTEXT
    yield "Traceback (most recent call last):"
    yield from _frames(error.__traceback__)
    yield _name(type(error))
    members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for at, member in enumerate(members):
        if len(seen) >= ERRORS:
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
    """A file's name below the folder of its package; elsewhere its last part alone."""
    found = (path.removeprefix(folder) for folder in _FOLDERS if path.startswith(folder))
    return next(found, path.rpartition("/")[2])


def _name(kind: type[BaseException]) -> str:
    module = kind.__module__
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"
