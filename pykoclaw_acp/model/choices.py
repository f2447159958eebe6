"""What a session offers to choose from: permission modes, models, slash commands.

Claude says which models and commands there are when a worker starts. Clients are told what the last worker in the
same directory said, before the next one runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

DEFAULT_MODEL: Final = "default"  # whatever Claude takes when nobody chooses


class Choice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A mode or a model: a stable id, a name and a sentence for people."""

    id: str
    name: str
    description: str = ""


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """A slash command, without its slash; `hint` says what may follow it."""

    name: str
    description: str = ""
    hint: str = ""


class Offer(msgspec.Struct, frozen=True):
    """What Claude offers in a directory."""

    commands: tuple[Command, ...] = ()
    models: tuple[Choice, ...] = ()


class Selection(msgspec.Struct, frozen=True):
    """What is chosen in a session, and what can be; the chosen is always among the choices."""

    mode: str
    modes: tuple[Choice, ...]
    model: str
    models: tuple[Choice, ...]


BYPASS: Final = Choice("bypassPermissions", "Bypass permissions", "Claude does everything without asking.")
MODES: Final = (
    Choice("default", "Ask first", "Claude asks before it changes files or runs commands."),
    Choice(
        "acceptEdits",
        "Accept edits",
        "Claude edits files, and makes, moves or deletes them by simple commands, unasked. It asks before others.",
    ),
    Choice("plan", "Plan", "Claude reads and makes a plan, and changes nothing."),
    Choice("dontAsk", "Don't ask", "Claude does only what is allowed already; everything else is refused."),
)
# Until Claude has said what there is.
MODELS: Final = (
    Choice(DEFAULT_MODEL, "Default", "The model that Claude recommends for this account."),
    Choice("opus", "Opus"),
    Choice("sonnet", "Sonnet"),
    Choice("haiku", "Haiku"),
)
# They need a terminal, a log-in, or would break the tie between an ACP session and Claude's.
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
    """Whether Claude accepts the mode bypassPermissions: from root only in what is declared a sandbox."""
    return user != 0 or environment.get("IS_SANDBOX") == "1"


def selection(mode: str, model: str | None, offer: Offer | None, *, bypass: bool) -> Selection:
    """The choices; a mode or model that is chosen but not on a list is added to it."""
    modes = (*MODES, BYPASS) if bypass else MODES
    models = MODELS if offer is None or not offer.models else offer.models
    chosen = model or DEFAULT_MODEL
    return Selection(mode, _with(modes, mode), chosen, _with(models, chosen))


def fit(commands: tuple[Command, ...]) -> tuple[Command, ...]:
    """The commands that a client can use."""
    return tuple(
        one for one in commands if one.name not in UNFIT and not one.name.startswith("__") and " " not in one.name
    )


def _with(choices: tuple[Choice, ...], chosen: str) -> tuple[Choice, ...]:
    return choices if any(one.id == chosen for one in choices) else (*choices, Choice(chosen, chosen))
