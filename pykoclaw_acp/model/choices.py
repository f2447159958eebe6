"""Choices of a session: permission modes, models, further config options, slash commands.

Claude reports its models and commands when a worker starts. Until then, clients get what the last
worker in the directory reported, or what others have said that holds everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

DEFAULT_MODEL: Final = "default"  # Claude's own default
DEFAULT_EFFORT: Final = "default"  # the model's own default, or that of the user's settings
EFFORT: Final = "effort"  # ids of config options, as claude-agent-acp names them
FAST: Final = "fast"
ON: Final = "on"
OFF: Final = "off"
AUTO_MODE: Final = "auto"
TAKEN_OVER: Final = ("plan", "acceptEdits")  # modes of other programs in which a session goes on
FALLBACK_MODE: Final = "default"  # instead of a mode that the model does not have


class Choice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A mode or a model: a stable id, a name and a description."""

    id: str
    name: str
    description: str = ""


class Model(Choice, frozen=True, omit_defaults=True):
    """A model, and what Claude says that it can do.

    `resolved`: Claude's own name of it; `efforts`: levels of effort, None if they are not known;
    `fast`: it has a fast mode, which the account may use; `auto`: it has the mode `auto`.
    """

    resolved: str = ""
    efforts: tuple[str, ...] | None = None
    fast: bool = False
    auto: bool = False


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """A slash command, without its slash; `hint` describes its arguments."""

    name: str
    description: str = ""
    hint: str = ""


class Offer(msgspec.Struct, frozen=True):
    """Models and commands that Claude offers in a directory."""

    commands: tuple[Command, ...] = ()
    models: tuple[Model, ...] = ()


class Configuration(msgspec.Struct, frozen=True):
    """What decides, besides the directory, what Claude offers: the account, whose name is empty for
    Claude's own configuration, the settings files, the CLI, and the key or service that a client
    gives (`StoredEnvironment.service`).
    """

    account: str = ""
    setting_sources: tuple[str, ...] = ()
    cli_path: str | None = None
    service: str = ""

    @property
    def models_of(self) -> str:
        """To whom the models belong: the account, also by which service."""
        return f"{self.account} {self.service}" if self.service else self.account


class Config(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is chosen besides mode and model. `effort` None: the default."""

    effort: str | None = None
    fast: bool = False


class Chosen(msgspec.Struct, frozen=True):
    """What is chosen in a session."""

    mode: str
    model: str
    config: Config = Config()


class Option(msgspec.Struct, frozen=True, omit_defaults=True):
    """A config option besides mode and model: its value, and its choices, which include that."""

    id: str
    name: str
    category: str
    value: str
    choices: tuple[Choice, ...]
    description: str = ""


class Selection(msgspec.Struct, frozen=True, omit_defaults=True):
    """Current mode and model of a session with their choices, which include the current ones.

    `options`: those that the model has besides; None: a version without them wrote it.
    """

    mode: str
    modes: tuple[Choice, ...]
    model: str
    models: tuple[Choice, ...]
    options: tuple[Option, ...] | None = None

    @property
    def config(self) -> Config | None:
        """What is chosen besides mode and model; None if it is not said."""
        if self.options is None:
            return None
        values = {one.id: one.value for one in self.options}
        effort = values.get(EFFORT, DEFAULT_EFFORT)
        return Config(None if effort == DEFAULT_EFFORT else effort, values.get(FAST) == ON)


BYPASS: Final = Choice(
    "bypassPermissions", "Bypass permissions", "Claude does everything without asking."
)
AUTO: Final = Choice(
    AUTO_MODE,
    "Auto",
    "Claude does without asking what a safety check of its service allows; the rest is refused.",
)
MODES: Final = (
    Choice("default", "Ask first", "Claude asks before it changes files or runs commands."),
    Choice(
        "acceptEdits",
        "Accept edits",
        "Claude edits files and creates, moves or deletes them by simple commands, without asking. It asks before other"
        " commands.",
    ),
    Choice("plan", "Plan", "Claude reads and makes a plan, and asks before it changes anything."),
    AUTO,
    Choice(
        "dontAsk",
        "Don't ask",
        "Claude does only what is allowed already; everything else is refused.",
    ),
)
# Until Claude has reported its own.
MODELS: Final = (
    Model(DEFAULT_MODEL, "Default", "The model that Claude recommends for this account."),
    Model("opus", "Opus"),
    Model("sonnet", "Sonnet"),
    Model("haiku", "Haiku"),
)
EFFORTS: Final = ("low", "medium", "high")  # those of every model, until Claude has reported its
MORE_EFFORTS: Final = ("xhigh", "max")  # those that only some models have
OF_SERVER: Final = "mcp__"  # how names of MCP tools and prompts begin
_OF_USER: Final = "(user)"
_SOURCE: Final = re.compile(r"\((?:project|local|managed|plugin|mcp)\b[^()]*\)\Z", re.IGNORECASE)
_NAMES: Final = {"xhigh": "Extra high"}
# Claude's own that need a terminal, a log-in or tools that workers do not have (`loop`: timers), or
# say nothing here.
UNFIT: Final = frozenset(
    {
        "agents",
        "color",
        "cost",
        "exit",
        "focus",
        "heapdump",
        "keybindings-help",
        "login",
        "logout",
        "loop",
        "output-style:new",
        "release-notes",
        "todos",
        "workflow-launch-exec",
    }
)
_CLEAR: Final = "clear"
_CLEARS: Final = "Let Claude forget this conversation, which stays here to be read"


def may_bypass(user: int, environment: Mapping[str, str]) -> bool:
    """Whether Claude accepts the mode bypassPermissions: as root only with IS_SANDBOX set."""
    return user != 0 or environment.get("IS_SANDBOX") == "1"


def models(offer: Offer | None) -> tuple[Model, ...]:
    """The models that can be chosen."""
    return MODELS if offer is None or not offer.models else offer.models


def model(name: str, offer: Offer | None) -> Model:
    """The model of this id, or of this name of Claude's; one that is not offered has no extras."""
    offered = models(offer)
    found = next((one for one in offered if one.id == name), None)
    found = found or next((one for one in offered if one.resolved == name), None)
    return found or Model(name, name)


def presumed(model: str) -> Offer:
    """What this model may have, until Claude has reported what it has: all that is known."""
    efforts = (*EFFORTS, *MORE_EFFORTS)
    return Offer(models=(Model(model, model, efforts=efforts, fast=True, auto=True),))


def about(model: str, offer: Offer | None) -> Offer | None:
    """The offer, if it says anything of this model; otherwise what the model may have."""
    return offer if offer is None or lists(model, offer) else presumed(model)


def lists(model: str, offer: Offer | None) -> bool:
    """Whether Claude lists the model under this id or name."""
    return any(model in (one.id, one.resolved) for one in models(offer))


def fitting(chosen: Chosen, offer: Offer | None) -> Chosen:
    """What is chosen, without what its model does not have."""
    its, config = model(chosen.model, offer), chosen.config
    if config.effort not in (None, *_efforts(its)):
        config = Config(None, config.fast)
    if config.fast and not its.fast:
        config = Config(config.effort)
    lacks_auto = its.efforts is not None and not its.auto  # else nothing is known of it
    mode = FALLBACK_MODE if lacks_auto and chosen.mode == AUTO_MODE else chosen.mode
    return Chosen(mode, chosen.model, config)


def selection(chosen: Chosen, offer: Offer | None, *, bypass: bool) -> Selection:
    """What is chosen with the choices; a current one that is not among the choices is added."""
    its = model(chosen.model, offer)
    every = (*MODES, BYPASS) if bypass else MODES
    modes = tuple(one for one in every if one != AUTO or its.auto)
    plain = tuple(Choice(one.id, one.name, one.description) for one in models(offer))
    return Selection(
        chosen.mode,
        _with(modes, chosen.mode),
        chosen.model,
        _with(plain, chosen.model),
        _options(chosen.config, its),
    )


def fit(commands: tuple[Command, ...]) -> tuple[Command, ...]:
    """Commands that work in a client; one of a user that has the name of an unfit one is not it.
    What Claude says of `/clear` holds in a terminal.
    """
    return tuple(
        msgspec.structs.replace(one, description=_CLEARS)
        if one.name == _CLEAR and _is_claudes(one)
        else one
        for one in commands
        if not (one.name in UNFIT and _is_claudes(one))
        and not one.name.startswith("__")
        and " " not in one.name
    )


def by_place(
    commands: tuple[Command, ...],
) -> tuple[tuple[Command, ...], tuple[Command, ...]]:
    """Return the commands of the directory, and the prompts of MCP servers; another session may
    lack them.
    """
    directory: list[Command] = []
    servers: list[Command] = []
    for one in commands:
        (servers if one.name.startswith(OF_SERVER) else directory).append(one)
    return tuple(directory), tuple(servers)


def elsewhere(offer: Offer | None, models: tuple[Model, ...]) -> Offer:
    """What an offer of one directory says of others: the commands of Claude and of the user. Of what
    belongs to a project, a plugin or an MCP server nobody knows whether it is there, too.
    """
    known = () if offer is None else offer.commands
    return Offer(tuple(one for one in known if _is_everywhere(one)), models)


def _is_everywhere(command: Command) -> bool:
    if command.description.endswith(_OF_USER):
        return True
    return (
        not command.name.startswith(OF_SERVER) and ":" not in command.name and _is_claudes(command)
    )


def _is_claudes(command: Command) -> bool:
    """Whether it is Claude's own: the description of others ends with where they are from."""
    of_user = command.description.endswith(_OF_USER)
    return not of_user and _SOURCE.search(command.description) is None


def _efforts(its: Model) -> tuple[str, ...]:
    return EFFORTS if its.efforts is None else its.efforts


def _options(config: Config, its: Model) -> tuple[Option, ...]:
    options: list[Option] = []
    if _efforts(its) or config.effort is not None:
        effort = config.effort or DEFAULT_EFFORT
        levels = (DEFAULT_EFFORT, *_efforts(its))
        choices = tuple(Choice(one, _NAMES.get(one, one.capitalize())) for one in levels)
        options.append(
            Option(
                EFFORT,
                "Effort",
                "thought_level",
                effort,
                _with(choices, effort),
                "How much Claude thinks before it answers.",
            )
        )
    if its.fast or config.fast:
        options.append(
            Option(
                FAST,
                "Fast mode",
                "model_config",
                ON if config.fast else OFF,
                (Choice(OFF, "Off"), Choice(ON, "On")),
                "Faster answers of the same model, at a higher price.",
            )
        )
    return tuple(options)


def _with(choices: tuple[Choice, ...], chosen: str) -> tuple[Choice, ...]:
    return (
        choices if any(one.id == chosen for one in choices) else (*choices, Choice(chosen, chosen))
    )
