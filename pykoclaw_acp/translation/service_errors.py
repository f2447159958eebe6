"""Errors of Claude's service in the CLI's words, without what is not for users: addresses, which are
the matter of whoever runs the gateway, and ids of requests.
"""

from __future__ import annotations

import re
from typing import Final

LOOKED_AT: Final = 16 * 1024  # characters in which the first words are looked for

_ADDRESS: Final = re.compile(
    r"\(?(?:https?://[^\s)]{1,500}|(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5})?|localhost:\d{1,5}|\[::1?\]:\d{1,5})\)?"
)
_ADVICE: Final = re.compile(
    r" If it persists, check your inference gateway(?: \([^()]{0,300}\))?\.?"
    r"| This is a server-side issue, usually temporary[^.]{0,40}\.?"
)
_GATEWAY: Final = re.compile(
    r"\b(requests go through|whoever runs|inference gateway) \(?[^\s,()]{1,300}\)?(?=[ ,.]|\Z)"
)
_BEGINNING: Final = re.compile(r"\AAPI Error: (?:(?!413)\d{3} )?")
_AGENT: Final = "Agent terminated early due to an API error: "
_REQUEST: Final = re.compile(r" \(error type [^()]{0,1000}\)\s*\Z")


def without_places(words: str) -> str:
    """The words of an error without addresses, and without advice on the gateway."""
    return _ADDRESS.sub("…", _ADVICE.sub("", words[:LOOKED_AT])).strip()


def without_gateway(words: str) -> str:
    """A notice of the CLI that does not name the gateway's address."""
    return _GATEWAY.sub(r"\1 the gateway", words)


def cause(words: str) -> str:
    """What the service says, without the CLI's beginning."""
    return _BEGINNING.sub("", without_places(words)) or "no words"


def of_agent(words: str) -> str | None:
    """Why a subagent has ended early, in a sentence, if these words say so."""
    if not words.startswith(_AGENT):
        return None
    said = _REQUEST.sub("", words[len(_AGENT) :][:LOOKED_AT])
    return f"The agent ended early because of an error of Claude's service: {cause(said)}"
