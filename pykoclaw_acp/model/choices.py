"""Choices of a session: permission modes, models, slash commands.

Claude reports its models and commands when a worker starts. Until then, clients get what the last
worker in the directory reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

DEFAULT_MODEL: Final = "default"  # Claude's own default


class Choice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A mode or a model: a stable id, a name and a description."""

    id: str
    name: str
    description: str = ""


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """A slash command, without its slash; `hint` describes its arguments."""

    name: str
    description: str = ""
    hint: str = ""


class Offer(msgspec.Struct, frozen=True):
    """Models and commands that Claude offers in a directory."""

    commands: tuple[Command, ...] = ()
    models: tuple[Choice, ...] = ()


class Selection(msgspec.Struct, frozen=True):
    """Current mode and model of a session with their choices, which include the current ones."""

    mode: str
    modes: tuple[Choice, ...]
    model: str
    models: tuple[Choice, ...]


BYPASS: Final = Choice(
    "bypassPermissions", "Bypass permissions", "Claude does everything without asking."
)
MODES: Final = (
    Choice("default", "Ask first", "Claude asks before it changes files or runs commands."),
    Choice(
        "acceptEdits",
        "Accept edits",
        "Claude edits files, and makes, moves or deletes them by simple commands, unasked. It asks before others.",
    ),
    Choice("plan", "Plan", "Claude reads and makes a plan, and changes nothing."),
    Choice(
        "dontAsk",
        "Don't ask",
        "Claude does only what is allowed already; everything else is refused.",
    ),
)
# Until Claude has reported its own.
MODELS: Final = (
    Choice(DEFAULT_MODEL, "Default", "The model that Claude recommends for this account."),
    Choice("opus", "Opus"),
    Choice("sonnet", "Sonnet"),
    Choice("haiku", "Haiku"),
)
# They need a terminal or a log-in, or would separate an ACP session from Claude's.
UNFIT: Final = frozenset(
    {
        "agents",
        "clear",
        "color",
        "cost",
        "exit",
        "focus",
        "heapdump",
        "keybindings-help",
        "login",
        "logout",
        "output-style:new",
        "release-notes",
        "rename",
        "todos",
    }
)


def may_bypass(user: int, environment: Mapping[str, str]) -> bool:
    """Whether Claude accepts the mode bypassPermissions: as root only with IS_SANDBOX set."""
    return user != 0 or environment.get("IS_SANDBOX") == "1"


def selection(mode: str, model: str | None, offer: Offer | None, *, bypass: bool) -> Selection:
    """Selection of mode and model; a current one that is not among the choices is added."""
    modes = (*MODES, BYPASS) if bypass else MODES
    models = MODELS if offer is None or not offer.models else offer.models
    chosen = model or DEFAULT_MODEL
    return Selection(mode, _with(modes, mode), chosen, _with(models, chosen))


def fit(commands: tuple[Command, ...]) -> tuple[Command, ...]:
    """Commands that work in a client."""
    return tuple(
        one
        for one in commands
        if one.name not in UNFIT and not one.name.startswith("__") and " " not in one.name
    )


def _with(choices: tuple[Choice, ...], chosen: str) -> tuple[Choice, ...]:
    return (
        choices if any(one.id == chosen for one in choices) else (*choices, Choice(chosen, chosen))
    )
