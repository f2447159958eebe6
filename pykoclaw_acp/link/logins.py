"""Ways to log in, as `initialize` offers them (ACP, authentication methods).

Standard library only.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # `typing` would cost the front half of its start-up time
if TYPE_CHECKING:
    from typing import Any, Final

SUBSCRIPTION: Final = "claude-ai-login"
CONSOLE: Final = "console-login"
KEY: Final = "anthropic-api-key"
LEGACY: Final = "terminal-auth"  # in `_meta`: what clients had before the type `terminal`
_TERMINAL: Final = (
    (SUBSCRIPTION, "Claude subscription", "Log in with a Claude subscription.", ()),
    (CONSOLE, "Anthropic Console", "Log in with an Anthropic Console account.", ("--console",)),
)


def methods(capabilities: object, account: str | None = None) -> list[dict[str, Any]]:
    """The methods that work for a client with these `clientCapabilities`; `account`: the one that
    its environment names.
    """
    terminal, legacy = _has_terminal(capabilities)
    found: list[dict[str, Any]] = []
    if terminal or legacy:
        found = [_in_terminal(one, account, terminal, legacy) for one in _TERMINAL]
    return [*found, _KEY_METHOD]


def ids() -> tuple[str, ...]:
    """The ids of all methods that some client is offered."""
    return (SUBSCRIPTION, CONSOLE, KEY)


def _has_terminal(capabilities: object) -> tuple[bool, bool]:
    """Whether the client runs logins in a terminal, by the type `terminal` and by `_meta`."""
    known = capabilities if isinstance(capabilities, dict) else {}
    auth, meta = known.get("auth"), known.get("_meta")
    return (
        isinstance(auth, dict) and auth.get("terminal") is True,
        isinstance(meta, dict) and meta.get(LEGACY) is True,
    )


def _in_terminal(
    method: tuple[str, str, str, tuple[str, ...]], account: str | None, terminal: bool, legacy: bool
) -> dict[str, Any]:
    method_id, name, description, options = method
    # As one word: an account's name could look like an option.
    arguments = ["login", *options, *([f"--account={account}"] if account else [])]
    made: dict[str, Any] = {"id": method_id, "name": name, "description": description}
    if terminal:
        made |= {"type": "terminal", "args": arguments}
    if legacy:
        # The client runs it in the project, whose files are not to be imported (-P).
        command = [*("-P", "-m", "pykoclaw_acp"), *arguments]
        made["_meta"] = {LEGACY: {"command": sys.executable, "args": command, "label": name}}
    return made


# The type `env_var` is no longer in ACP: what it said is in `_meta`, and the method the agent's own.
_KEY_METHOD: Final = {
    "id": KEY,
    "name": "Anthropic API key",
    "description": "Set ANTHROPIC_API_KEY in the environment that the client gives to this agent.",
    "_meta": {"env_var": {"vars": [{"name": "ANTHROPIC_API_KEY", "secret": True}]}},
}
