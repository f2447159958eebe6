"""`session/list`, `session/delete`, `session/archive`, `session/unarchive`, `session/set_title`."""

from __future__ import annotations

from typing import Any, Final

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.model import conversations
from pykoclaw_acp.model.listing import Archived, ListedSession, ListPosition
from pykoclaw_acp.protocol import list_cursor
from pykoclaw_acp.protocol.limits import MAX_NAME, MAX_PATH
from pykoclaw_acp.protocol.messages import (
    Empty,
    ListSessionsParams,
    ListSessionsResult,
    SessionInfo,
    SessionParams,
    SetTitleParams,
    SetTitleResult,
)
from pykoclaw_acp.protocol.times import iso
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.lifecycle import absolute

TRANSCRIPT: Final = "pykoclaw.dev/transcript"  # true for a session that only Claude knows
MOST_TITLE: Final = 1000  # characters; another program's conversation may have any name
CHANNEL: Final = "pykoclaw.dev/channel"  # of a conversation that is not of ACP clients


async def list_sessions(call: Call, params: ListSessionsParams) -> ListSessionsResult:
    """A page of the sessions, newest first. Opens nothing."""
    cwd = None if params.cwd is None else absolute("cwd", params.cwd)
    page = await call.sessions.catalogue.page(
        _after(params.cursor), cwd, _archived(params.archived)
    )
    return ListSessionsResult(
        sessions=[_info(one) for one in page.sessions],
        next_cursor=None if page.end is None else list_cursor.encode(page.end),
    )


async def delete(call: Call, params: SessionParams) -> Empty:
    """End the session's turns and delete what was said in it; succeeds if there is none."""
    await call.sessions.catalogue.delete(params.session_id)
    return Empty()


async def archive(call: Call, params: SessionParams) -> Empty:
    """Close the session, and leave it out of lists that do not ask for it."""
    await call.sessions.catalogue.archive(params.session_id, archived=True)
    return Empty()


async def unarchive(call: Call, params: SessionParams) -> Empty:
    """Show the session in lists again."""
    await call.sessions.catalogue.archive(params.session_id, archived=False)
    return Empty()


async def set_title(call: Call, params: SetTitleParams) -> SetTitleResult:
    """Give the session a title; all its clients are told."""
    stored = await call.sessions.catalogue.set_title(params.session_id, params.title)
    return SetTitleResult(title=stored)


def _after(cursor: str | None) -> ListPosition | None:
    if cursor is None:
        return None
    place = list_cursor.decode(cursor)
    if place is None:
        raise InvalidParams(
            "`cursor`: was not issued by this agent. Begin the list again, without a cursor."
        )
    return place


def _archived(wanted: str | None) -> Archived:
    for one in Archived:
        if one == (wanted or Archived.EXCLUDE):
            return one
    raise InvalidParams(f"`archived`: must be one of {', '.join(Archived)}.")


def _info(one: ListedSession) -> SessionInfo:
    return SessionInfo(
        session_id=one.session_id,
        cwd=one.cwd if one.cwd and len(one.cwd) <= MAX_PATH else "/",
        additional_directories=one.directories,
        title=one.title and one.title[:MOST_TITLE],
        updated_at=iso(one.updated_at),
        archived=one.archived,
        meta=_meta(one) or None,
    )


def _meta(one: ListedSession) -> dict[str, Any]:
    if one.conversation is None:
        return {TRANSCRIPT: True}
    channel = conversations.channel(one.conversation)
    return {} if channel == conversations.OWN else {CHANNEL: channel[:MAX_NAME]}
