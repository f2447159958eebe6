"""Conversations of the table that pykoclaw's programs share: names, channels, and the ids under
which clients open them.

A name is `<channel>-<id>`. The earlier plugin named the conversation of a session `acp-` and the
first eight characters of the session's id, and kept no other mapping.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1
from typing import Final
from uuid import UUID, uuid5

OWN: Final = "acp"  # the channel of ACP clients
NO_CHANNEL: Final = "chat"  # of a name without one, as pykoclaw has it
NAME_LENGTH: Final = 8  # characters of a session's id in its conversation's name
NAMESPACE: Final = UUID("a3c1be0e-58a5-4d2e-9d0b-6f7a5c1f2e94")
"""Never changes: clients keep the ids that are made with it."""
_SALT: Final = NAMESPACE.bytes
_LABELS: Final = {
    "wa": "WhatsApp",
    "tg": "Telegram",
    "matrix": "Matrix",
    "slack": "Slack",
    "chat": "Chat",
}


@dataclass(frozen=True, slots=True)
class Conversation:
    """A row of `conversations`; an empty session id counts as none.

    `prompt_hash`: of the system prompt with which another program ran the last turn.
    """

    name: str
    claude_session_id: str | None = None
    cwd: str | None = None
    prompt_hash: str | None = None


@dataclass(frozen=True, slots=True)
class FollowedConversation:
    """What a session follows: its conversation's row, as it is now, and what was taken from it
    last. None where there is none.
    """

    row: Conversation | None
    claude_session_id: str | None
    prompt_hash: str | None

    @property
    def is_current(self) -> bool:
        """Whether the row names what the session follows."""
        row = self.row
        return row is not None and (row.claude_session_id, row.prompt_hash) == (
            self.claude_session_id,
            self.prompt_hash,
        )


@dataclass(frozen=True, slots=True)
class ConversationOwner:
    """The session that a conversation has, or had."""

    session_id: str
    deleted: bool


def channel(name: str) -> str:
    """The channel of a conversation: what comes before the first hyphen."""
    prefix, hyphen, _ = name.partition("-")
    return prefix if hyphen and prefix else NO_CHANNEL


def id_of(name: str) -> str:
    """The id under which clients open a conversation that another program began: a UUID of
    version 5, the same in every installation.
    """
    return str(uuid5(NAMESPACE, name))


def id_begins(name: str, beginning: str) -> bool:
    """Whether the `id_of` this name begins so; for searches through many names."""
    made = bytearray(sha1(_SALT + name.encode(), usedforsecurity=False).digest()[:16])
    made[6] = made[6] & 0x0F | 0x50  # RFC 9562, section 5.5
    made[8] = made[8] & 0x3F | 0x80
    return made.hex().startswith(beginning.replace("-", ""))


def is_made_of_name(session_id: str) -> bool:
    """Whether it may be the `id_of` a conversation."""
    known = _uuid(session_id)
    return known is not None and known.version == 5


def earlier_name(session_id: str) -> str | None:
    """The name that the earlier plugin gave to the conversation of this session; None for what is
    no UUID.
    """
    return None if _uuid(session_id) is None else f"{OWN}-{session_id[:NAME_LENGTH]}"


def title(name: str) -> str | None:
    """A title for a conversation of another channel."""
    prefix = channel(name)
    if prefix == OWN:
        return None
    return f"{_LABELS.get(prefix, prefix)}: {name.removeprefix(f'{prefix}-')}"


def _uuid(session_id: str) -> UUID | None:
    try:
        known = UUID(session_id)
    except ValueError:
        return None
    return known if str(known) == session_id.lower() else None
