"""`make man`: docs/pykoclaw-acp.1, the manual page, from the command line's own help."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from pykoclaw_acp.cli.program import cli
from pykoclaw_acp.config.listing import HIDDEN
from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.config.sources import variable

PAGE = Path(__file__).parent / "pykoclaw-acp.1"
NAME = "pykoclaw-acp"
EXITS = (
    ("0", "Success."),
    ("1", "The command failed, or doctor found a problem."),
    ("2", "The command line could not be understood."),
    ("3", "No daemon is running, or it does not answer."),
    ("4", "prompt: the turn was cancelled."),
    (
        "5",
        "prompt: it is unknown whether the daemon has it, whether Claude had begun, or how the turn ended.",
    ),
    ("6", "prompt: a hook has blocked the prompt, and Claude was not given it."),
    ("75", "Another server owns the data directory, or the daemon needs a restart."),
    ("78", "A setting, a directory or the database cannot be used."),
    ("130", "prompt: ended by Ctrl-C or Ctrl-D; the turn continues."),
)
FILES = (
    ("~/.local/share/pykoclaw/pykoclaw.db", "Conversations; PYKOCLAW_DATA is its directory."),
    ("~/.local/share/pykoclaw/.env", "Settings, one NAME=VALUE a line."),
    ("~/.local/state/pykoclaw/", "Logs, and what running workers have not delivered yet."),
)


def page() -> str:
    """The manual page, in roff's man macros."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield f'.TH "{NAME.upper()}" "1" "" "" "User Commands"'
    yield from (".SH NAME", f"{NAME} \\- {_text(_help(cli)[0][0].lower() + _help(cli)[0][1:-1])}")
    yield from (".SH SYNOPSIS", f"\\fB{_text(NAME)}\\fR [\\fIOPTIONS\\fR] [\\fICOMMAND\\fR]")
    yield ".SH DESCRIPTION"
    yield from _paragraphs(_help(cli)[1:])
    yield ".SH OPTIONS"
    yield from _options(cli)
    yield ".SH COMMANDS"
    yield from _commands(cli, NAME)
    yield ".SH ENVIRONMENT"
    yield from _paragraphs(["Each can also be a line of ~/.local/share/pykoclaw/.env."])
    for name, field in sorted(Settings.model_fields.items()):
        if name not in HIDDEN:
            yield from _entry(variable(Settings, name), field.description or "")
    yield ".SH EXIT STATUS"
    for status, words in EXITS:
        yield from _entry(status, words)
    yield ".SH FILES"
    for path, words in FILES:
        yield from _entry(path, words)


def _commands(group: click.Group, path: str) -> Iterator[str]:
    for name, command in sorted(group.commands.items()):
        if command.hidden:
            continue
        arguments = [
            f"\\fI{_text(one.make_metavar(click.Context(command)))}\\fR"
            for one in command.params
            if isinstance(one, click.Argument)
        ]
        yield f'.SS "{" ".join([_text(f"{path} {name}"), *arguments])}"'
        yield from _paragraphs(_help(command))
        yield from _options(command)
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")


def _options(command: click.Command) -> Iterator[str]:
    context = click.Context(command)
    for one in command.params:
        if isinstance(one, click.Option) and (record := one.get_help_record(context)) is not None:
            yield from _entry(*record)


def _entry(term: str, words: str) -> Iterator[str]:
    yield from (".TP", f"\\fB{_text(term)}\\fR", _text(" ".join(words.split())))


def _help(command: click.Command) -> list[str]:
    """Paragraphs of a command's help."""
    return re.split(r"\n\s*\n", inspect.cleandoc(command.help or ""))


def _paragraphs(paragraphs: list[str]) -> Iterator[str]:
    for paragraph in paragraphs:
        if paragraph.startswith("\b"):
            yield from (".PP", ".nf", *map(_text, paragraph.split("\n")[1:]), ".fi")
        else:
            yield from (".PP", _text(" ".join(paragraph.split())))


def _text(words: str) -> str:
    """Text in which roff sees no request, escape or hyphenation."""
    escaped = words.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return "\\&" + escaped if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
