"""Sessions for conversations that other programs began: each is found by the id that a client holds
or is shown, and gets one session of ours.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from pykoclaw_acp.errors import Conflict, InvalidParams, RowRefused, SessionNotFound
from pykoclaw_acp.model import conversations
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.neutral import neutral
from pykoclaw_acp.sessions import directories
from pykoclaw_acp.sessions.new_session import require_same
from pykoclaw_acp.sessions.ports import ConversationStore
from pykoclaw_acp.system import disks
from pykoclaw_acp.tasks import Pace

PAGE: Final = 1000  # names read at once
LONGEST_NAME: Final = 255  # bytes; it is the name of a directory
MOST: Final = 2  # names that one word may stand for

log: Final = structlog.get_logger()


async def name_of(store: ConversationStore, session_id: str) -> str | None:
    """The conversation that another program began and that this id, which no session has, stands
    for: by the id that is made of its name, or as the earlier plugin named conversations.
    """
    if conversations.is_made_of_name(session_id):
        for name in await _names(store, lambda name: conversations.id_begins(name, session_id)):
            return name
    earlier = conversations.earlier_name(session_id)
    row = None if earlier is None else await store.conversation(earlier)
    return None if row is None or row.claude_session_id is None else row.name


def ambiguous(word: str) -> InvalidParams:
    """The error for the beginning of several sessions' ids."""
    return InvalidParams(f"More than one session's id begins with {word}. Give more of it.")


async def only_name_of(store: ConversationStore, word: str) -> str | None:
    """The conversation without a session that `word` stands for: a name, an id, or the beginning of
    one that is made of a name. Raises InvalidParams if it stands for several.
    """
    names = await _names_of(store, word)
    if len(names) > 1:
        raise ambiguous(word)
    return names[0] if names else None


async def is_continued(store: ConversationStore, name: str) -> bool:
    """Whether a program has begun the conversation of this name."""
    row = await store.conversation(name)
    return row is not None and row.claude_session_id is not None


async def _names_of(store: ConversationStore, word: str) -> list[str]:
    """Two of them at most."""
    if not word:
        return []
    row = await store.conversation(word)
    if row is not None:
        return [] if row.claude_session_id is None else [word]
    found = await _names(store, lambda name: conversations.id_begins(name, word))
    if not found and (earlier := await name_of(store, word)) is not None:
        found = [earlier]
    return [name for name in found if await store.owner_of(name) is None]


async def _names(store: ConversationStore, match: Callable[[str], bool]) -> list[str]:
    """The first two names that match, of all conversations that can be continued."""
    found: list[str] = []
    pace, after = Pace(), ""
    while len(found) < MOST:
        names = await store.continued(after, PAGE)
        for name in names:
            if match(name):
                found.append(name)
            await pace.step()
        last = max(names, default="")  # a damaged name is read as an empty one
        if last <= after:
            break
        after = last
    return found[:MOST]


async def adopt(
    store: ConversationStore,
    session_id: str,
    cwd: str | None,
    client: str | None,
    account: str | None = None,
) -> str:
    """Make this id, which no session has, one of a session; returns the session's id.

    The session is a new one in `cwd`, or the one that the conversation has. Raises SessionNotFound
    if no conversation is meant, or another client's id has it; InvalidParams if there is no such
    directory, or another account than Claude's own configuration is asked for.
    """
    name = await name_of(store, session_id)
    if name is None:
        raise SessionNotFound(session_id)
    owner = await store.owner_of(name)
    if owner is None:
        require_same("", account)
        await directories.require_own(cwd)
        record = SessionRecord(
            session_id, name, cwd, title=conversations.title(name), client=client
        )
        try:
            await store.adopt(record)
        except (Conflict, RowRefused):  # another request was first
            owner = await store.owner_of(name)
        else:
            log.info(
                "Conversation of another program adopted",
                action="conversation_adopted",
                session=session_id,
                conversation=name,
            )
            return session_id
    if owner is None or owner.deleted:
        raise SessionNotFound(session_id)
    if owner.session_id == session_id:
        return session_id
    return await _share(store, session_id, name, owner.session_id)


async def begin(store: ConversationStore, name: str) -> str:
    """A conversation of another channel that no program has begun, and its session; returns the
    session's id. Raises InvalidParams for another name, SessionNotFound if it was deleted.
    """
    if conversations.channel(name) in (conversations.OWN, conversations.NO_CHANNEL):
        raise InvalidParams(
            "There is no conversation of this name, and only one of another channel is begun by its"
            " name."
        )
    if len(name.encode()) > LONGEST_NAME:
        raise InvalidParams(
            f"The name of a conversation has {LONGEST_NAME} bytes at most, this one has"
            f" {len(name.encode())}."
        )
    record = SessionRecord(conversations.id_of(name), name, None, title=conversations.title(name))
    with contextlib.suppress(Conflict):
        await store.begin(record)
    owner = await store.owner_of(name)
    if owner is None or owner.deleted:
        raise SessionNotFound(record.session_id)
    return owner.session_id


async def has_moved(known: str | None, cwd: str) -> bool:
    """Whether the session of a directory that is gone continues in `cwd`, as after a project was
    moved. Raises InvalidParams if `cwd` is another directory than one that is there, or does not exist.
    """
    if await is_same_place(known, cwd):
        return False
    if known is None or not await directories.is_gone(known):
        named = "" if known is None else f", {neutral(known)}"
        raise InvalidParams(
            f"`cwd`: the session belongs to another directory{named}. `session/fork` with this `cwd` "
            "continues it here, as a session of its own.",
            {"sessionCwd": known, "cwd": cwd, "instead": "session/fork"},
        )
    await directories.require_own(cwd)
    return True


async def moved_from(record: SessionRecord, cwd: str) -> str | None:
    """The session's directory in whose place `cwd` comes; None if none does. Raises as `has_moved`."""
    while True:
        known = record.cwd
        moves = known is not None and await has_moved(known, cwd)
        if record.cwd == known:  # else another client has moved it meanwhile
            return known if moves else None


async def is_same_place(one: str | None, other: str) -> bool:
    """Whether two paths lead to one directory, which need not exist. Raises InvalidParams if their
    disks do not answer.
    """
    if one is None or one == other:
        return one is not None
    try:
        return await _real(one) == await _real(other)
    except TimeoutError as error:
        raise InvalidParams(f"`cwd`: {disks.SILENT}.") from error


async def _real(path: str) -> str:
    return await disks.call(path, partial(os.path.realpath, path))


async def _share(store: ConversationStore, session_id: str, name: str, owner: str) -> str:
    """Make this id a further one of the conversation's session.

    Of the ids that the earlier plugin may have given to one conversation, the first that is used
    counts.
    """
    made = conversations.id_of(name)
    if made in (session_id, owner):
        with contextlib.suppress(Conflict, RowRefused):
            await store.add_alias(session_id, owner, only=session_id != made)
            return owner
    raise SessionNotFound(
        session_id,
        f"Session not found. Its conversation, {name}, was opened under another session id with the same beginning, "
        "which keeps it. Begin a new one.",
    )
