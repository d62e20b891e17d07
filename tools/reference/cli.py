"""The command-line page: every command and option of `solar`."""

import argparse
import re
from collections.abc import Iterator

from app.__main__ import build_parser
from app.config import VARIABLES
from tools.reference.markdown import table

_HEAD = """# Commands

All commands of `solar` with their options. `solar --version` prints the version, `solar COMMAND --help` the
options of a command. Exit codes: 0 success, 2 an error (on standard error, without a stack trace), 130 Ctrl-C,
141 the reader of the output closed the pipe.
"""
_FLAGS = {f"--{name.replace('_', '-')}" for name in VARIABLES.values()}
_FLAGS |= {f"--no-{name}" for name in VARIABLES.values()}


def page() -> str:
    """Render the page."""
    return _HEAD + "".join(_commands())


def _commands() -> Iterator[str]:
    commands = next(
        action
        for action in build_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    helps = {action.dest: action.help for action in commands._choices_actions}
    for name, parser in commands.choices.items():
        about = parser.description or helps[name] or ""
        yield f"\n## solar {name}\n\n{_sentence(about)}\n\n{_options(name, parser)}\n"


def _options(name: str, parser: argparse.ArgumentParser) -> str:
    actions = [one for one in parser._actions if not isinstance(one, argparse._HelpAction)]
    note = ""
    if name in ("serve", "config"):
        actions = [one for one in actions if not set(one.option_strings) & _FLAGS]
        note = "Every [setting](settings.md) is a flag. "
    if not actions:
        return note.strip()
    rows = (_row(one) for one in actions)
    return (f"{note}Other options:\n\n" if note else "") + table(["option", "meaning"], rows)


def _row(action: argparse.Action) -> list[str]:
    metavar = action.metavar if isinstance(action.metavar, str) else None
    if not action.option_strings:
        shown = metavar or action.dest
    elif action.nargs == 0:
        shown = action.option_strings[0]
    else:
        choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else None
        shown = f"{action.option_strings[0]} {metavar or choices or action.dest.upper()}"
    return [f"`{shown}`", _sentence((action.help or "") % {"default": action.default})]


def _sentence(text: str) -> str:
    plain = re.sub(r"\s+", " ", text).strip().rstrip(".")
    return f"{plain[:1].upper()}{plain[1:]}." if plain else ""
