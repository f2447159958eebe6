"""Who sent a prompt that was imported, as far as transcript and database say."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pykoclaw_acp.model.prompt_text import TERMINAL
from pykoclaw_acp.model.scheduled import ORIGIN

_TERMINAL: Final = ("cli", "sdk-cli")
_CHANNELS: Final = {"wa": "whatsapp", "tg": "telegram"}
_SDK: Final = "sdk-py"  # programs of pykoclaw use the SDK for Python


def of_terminal(entrypoint: str | None) -> bool:
    """Whether this is the program that people type in."""
    return entrypoint in _TERMINAL


def origin(
    entrypoint: str | None, conversation: str, prompt: str, scheduled: Collection[str]
) -> str:
    """`terminal`, `scheduler`, a channel, `pykoclaw`, or the name that the transcript gives the
    program, such as `sdk-ts` for one on Claude's SDK for TypeScript.
    """
    if of_terminal(entrypoint):
        return TERMINAL
    if entrypoint and entrypoint != _SDK:
        return entrypoint
    if prompt in scheduled:
        return ORIGIN
    prefix = conversation.partition("-")[0]
    return "pykoclaw" if prefix in ("", "acp") else _CHANNELS.get(prefix, prefix)
