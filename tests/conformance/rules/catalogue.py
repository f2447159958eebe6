"""Sessions as a list: listing, deleting, copying, archiving, naming."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from tests.conformance import scripts
from tests.conformance.agents import Agent
from tests.conformance.peer import Frame, Peer, result_of
from tests.conformance.recording import Recording
from tests.conformance.registry import check, must, must_always, should, unsupported

LIST = "sessionCapabilities.list"
UNKNOWN = "00000000-0000-4000-8000-000000000000"
FULL = 100  # sessions; a page of most agents has fewer


async def _told(agent: Agent, peer: Peer) -> tuple[str, Path]:
    """A session with a prompt: one without may be left out of lists."""
    session, cwd = await agent.session(peer)
    await peer.prompt(session, "A session to be listed.\n" + agent.text("Listed."))
    return session, cwd


async def listed(peer: Peer, **params: Any) -> list[Frame]:
    """All pages."""
    found: list[Frame] = []
    page = await peer.call("session/list", **params)
    for _ in range(1000):
        check(isinstance(page.get("sessions"), list), f"`sessions` is no list: {page}")
        found += page["sessions"]
        cursor = page.get("nextCursor")
        if cursor is None:
            return found
        check(page["sessions"], f"an empty page has a cursor: {page}")
        page = await peer.call("session/list", **params, cursor=cursor)
    check(False, "more than 1000 pages: the cursor does not advance")
    return found


def _ids(found: list[Frame]) -> list[str]:
    return [one["sessionId"] for one in found]


@must
async def lists_contain_the_sessions_of_a_directory(agent: Agent) -> None:
    """`session/list` with `cwd` gives the sessions of exactly that directory, each once."""
    async with agent.client() as peer:
        peer.needs(LIST)
        session, cwd = await _told(agent, peer)
        other, _ = await _told(agent, peer)
        found = _ids(await listed(peer, cwd=str(cwd)))
        check(found == [session], f"{session} is in {cwd} alone; listed: {found}")
        every = _ids(await listed(peer))
        check({session, other} <= set(every), "a session is missing in the whole list")
        check(len(every) == len(set(every)), "a session is in the list twice")


@must
async def cursors_lead_through_the_whole_list(agent: Agent) -> None:
    """`nextCursor` leads from page to page to the end of the list, with each session once."""
    async with agent.client() as peer:
        peer.needs(LIST)
        peer.needs("sessionCapabilities.fork")
        session, cwd = await _told(agent, peer)
        known, made = {"cwd": str(cwd)}, {session}
        while (await peer.call("session/list", **known)).get("nextCursor") is None:
            if len(made) == FULL:
                unsupported(f"a page of its lists has {FULL} sessions")
            copy = await peer.call("session/fork", sessionId=session, **known, mcpServers=[])
            made.add(copy["sessionId"])
        found = _ids(await listed(peer, **known))
        check(len(found) == len(set(found)), "a session is on two pages")
        check(set(found) == made, f"not on any page: {made - set(found)}")


@must
async def nothing_found_is_an_empty_list(agent: Agent) -> None:
    """`session/list` for a directory without sessions gives `[]` and no cursor."""
    async with agent.client() as peer:
        peer.needs(LIST)
        page = await peer.call("session/list", cwd=str(agent.directory()))
        check(page.get("sessions") == [] and not page.get("nextCursor"), f"not empty: {page}")


@should
async def a_wrong_cursor_is_invalid(agent: Agent) -> None:
    """`session/list` with a cursor that the agent has not given is an error."""
    async with agent.client() as peer:
        peer.needs(LIST)
        await peer.refused("session/list", cursor="\x00 no cursor \x00")


@must
async def listing_has_no_effects(agent: Agent) -> None:
    """`session/list` opens nothing, sends no updates, and says the same twice."""
    async with agent.client() as peer:
        peer.needs(LIST)
        _, cwd = await _told(agent, peer)
        first = await peer.call("session/list", cwd=str(cwd))
        since = peer.seen()
        check(await peer.call("session/list", cwd=str(cwd)) == first, "it changes by itself")
        later = [line.frame for line in peer.recording.lines[since:] if line.by_agent]
        kinds = {str((one or {}).get("method")) for one in later}
        check("session/update" not in kinds, f"updates sent while listing: {later}")


@must_always
def times_of_listed_sessions_are_iso_8601(recording: Recording) -> None:
    """`updatedAt` is a time with its zone, in lists and in `session_info_update`."""
    found = [
        one
        for _, result in recording.results("session/list")
        for one in result.get("sessions") or []
    ]
    for one in [*found, *(update for _, update in recording.updates("session_info_update"))]:
        if (written := one.get("updatedAt")) is not None:
            try:
                at = datetime.datetime.fromisoformat(written)
            except (TypeError, ValueError):
                at = None
            check(at is not None and at.tzinfo is not None, f"updatedAt is {written!r}")


@must_always
def directories_of_listed_sessions_are_absolute(recording: Recording) -> None:
    """`cwd` of a listed session is an absolute path."""
    for _, result in recording.results("session/list"):
        for one in result.get("sessions") or []:
            check(str(one.get("cwd")).startswith("/"), f"not absolute: {one}")


@must
async def a_deleted_session_is_not_listed(agent: Agent) -> None:
    """After `session/delete` the session is in no list."""
    async with agent.client() as peer:
        peer.needs("sessionCapabilities.delete")
        session, cwd = await _told(agent, peer)
        await peer.call("session/delete", sessionId=session)
        peer.needs(LIST)
        check(session not in _ids(await listed(peer, cwd=str(cwd))), "it is still listed")


@should
async def deleting_is_idempotent(agent: Agent) -> None:
    """`session/delete` of an unknown session, and of one that is deleted, succeeds."""
    async with agent.client() as peer:
        peer.needs("sessionCapabilities.delete")
        await peer.call("session/delete", sessionId=UNKNOWN)
        session, _ = await _told(agent, peer)
        await peer.call("session/delete", sessionId=session)
        await peer.call("session/delete", sessionId=session)


@must
async def a_fork_is_a_session_of_its_own(agent: Agent) -> None:
    """`session/fork` gives a new id, and what the copy is told does not reach the original."""
    async with agent.client() as peer:
        peer.needs("sessionCapabilities.fork")
        session, cwd = await _told(agent, peer)
        forked = await peer.call("session/fork", sessionId=session, cwd=str(cwd), mcpServers=[])
        copy = forked.get("sessionId")
        check(isinstance(copy, str) and copy and copy != session, f"the copy's id is {copy!r}")
        assert isinstance(copy, str)
        await peer.prompt(copy, "The word is ananas.\n" + agent.text("Remembered."))
        since = peer.seen()
        await peer.prompt(session, agent.script("report"))
        report = peer.said(session, since=since)
        check("listed" in report, f"the original has lost its words: {report[:1000]}")
        check("ananas" not in report, f"the original has the copy's words: {report[:1000]}")


@must
async def forking_an_unknown_session_is_not_found(agent: Agent) -> None:
    """`session/fork` of an unknown session is answered with -32002."""
    async with agent.client() as peer:
        peer.needs("sessionCapabilities.fork")
        cwd = str(agent.directory())
        error = await peer.refused("session/fork", sessionId=UNKNOWN, cwd=cwd, mcpServers=[])
        check(error["code"] == -32002, f"not -32002: {error}")


@must
async def archiving_needs_a_list(agent: Agent) -> None:
    """Who advertises `archive` advertises `list`."""
    async with agent.client() as peer:
        peer.needs("sessionCapabilities.archive")
        offered = peer.recording.agent["agentCapabilities"]["sessionCapabilities"]
        check(isinstance(offered.get("list"), dict), f"archive without list: {offered}")


@must
async def archived_sessions_are_listed_on_demand(agent: Agent) -> None:
    """An archived session is in lists with `archived` `include` or `only`, and not by default."""
    async with agent.client() as peer:
        peer.needs("sessionCapabilities.archive")
        session, cwd = await _told(agent, peer)
        known: Frame = {"cwd": str(cwd)}
        await peer.call("session/archive", sessionId=session)
        check(_ids(await listed(peer, **known)) == [], "it is listed by default")
        for wanted in ("include", "only"):
            found = await listed(peer, **known, archived=wanted)
            check([one.get("archived") for one in found] == [True], f"{wanted}: {found}")
        await peer.call("session/unarchive", sessionId=session)
        found = await listed(peer, **known)
        check([one.get("archived") for one in found] == [False], f"not archived: {found}")


@must
async def archiving_is_idempotent(agent: Agent) -> None:
    """`session/archive` and `unarchive` succeed twice; an unknown session is -32002."""
    async with agent.client() as peer:
        peer.needs("sessionCapabilities.archive")
        session, _ = await _told(agent, peer)
        for method in ("session/archive", "session/unarchive"):
            await peer.call(method, sessionId=session)
            await peer.call(method, sessionId=session)
            error = await peer.refused(method, sessionId=UNKNOWN)
            check(error["code"] == -32002, f"{method}: not -32002: {error}")


@must
async def archiving_closes_a_session_first(agent: Agent) -> None:
    """`session/archive` ends a running prompt with the stop reason `cancelled`, then answers."""
    async with agent.client() as peer:
        peer.needs("sessionCapabilities.archive")
        session, _ = await agent.session(peer)
        running = peer.begin_prompt(session, agent.script(scripts.LONG))
        await peer.until(lambda: "w2" in peer.said(session), "the running answer")
        archiving = peer.begin("session/archive", sessionId=session)
        answer = await peer.answer(running, "the running prompt")
        reason = (answer.get("result") or {}).get("stopReason")
        check(reason == "cancelled", f"the running prompt is answered with {answer}")
        result_of(await peer.answer(archiving, "session/archive"), "session/archive")


@must
async def an_unknown_archive_filter_is_invalid(agent: Agent) -> None:
    """`session/list` with an unknown value of `archived` is answered with -32602."""
    async with agent.client() as peer:
        peer.needs("sessionCapabilities.archive")
        error = await peer.refused("session/list", archived="maybe")
        check(error["code"] == -32602, f"not -32602: {error}")


@must
async def the_status_of_an_unknown_session_is_not_found(agent: Agent) -> None:
    """`session/status` of an unknown session is -32002 and names it in `data.sessionId`."""
    async with agent.client() as peer:
        peer.needs("sessionCapabilities.status")
        error = await peer.refused("session/status", sessionId=UNKNOWN)
        named = (error.get("data") or {}).get("sessionId")
        check(error["code"] == -32002 and named == UNKNOWN, f"the error is {error}")


@must
async def the_status_of_an_open_session_is_open(agent: Agent) -> None:
    """`session/status` of a session in use says `open`, and changes nothing."""
    async with agent.client() as peer:
        peer.needs("sessionCapabilities.status")
        session, _ = await agent.session(peer)
        for _ in range(2):
            status = (await peer.call("session/status", sessionId=session)).get("status")
            check(status == "open", f"the status is {status!r}")


@must
async def titles_are_stored(agent: Agent) -> None:
    """`session/set_title` answers with the title that lists then have."""
    async with agent.client() as peer:
        peer.needs("sessionCapabilities.title")
        session, cwd = await _told(agent, peer)
        params = {"sessionId": session, "title": "A title of mine"}
        stored = (await peer.call("session/set_title", **params)).get("title")
        check(stored == "A title of mine", f"stored is {stored!r}")
        peer.needs(LIST)
        (one,) = await listed(peer, cwd=str(cwd))
        check(one.get("title") == stored, f"listed as {one}")


@should
async def a_title_of_the_user_stays(agent: Agent) -> None:
    """After `session/set_title` a prompt changes the title nowhere."""
    async with agent.client() as peer:
        peer.needs("sessionCapabilities.title")
        session, cwd = await _told(agent, peer)
        await peer.call("session/set_title", sessionId=session, title="A title of mine")
        await peer.fence()
        since = peer.seen()
        await peer.prompt(session, "Something else entirely.\n" + agent.text("Told."))
        await peer.fence()
        told = [
            one.get("title") for one in peer.updates(session, "session_info_update", since=since)
        ]
        check(set(told) <= {None, "A title of mine"}, f"titled anew: {told}")
        peer.needs(LIST)
        (one,) = await listed(peer, cwd=str(cwd))
        check(one.get("title") == "A title of mine", f"listed as {one}")


@must
async def empty_titles_are_invalid(agent: Agent) -> None:
    """`session/set_title` with nothing but spaces is answered with -32602."""
    async with agent.client() as peer:
        peer.needs("sessionCapabilities.title")
        session, _ = await _told(agent, peer)
        error = await peer.refused("session/set_title", sessionId=session, title="  ")
        check(error["code"] == -32602, f"not -32602: {error}")


@must
async def system_prompts_that_cannot_be_used_are_refused(agent: Agent) -> None:
    """`systemPrompt` with an unknown mode, or a block that is no text, is an error, and no session is
    made.
    """
    async with agent.client() as peer:
        peer.needs("sessionCapabilities.systemPrompt")
        cwd, since = str(agent.directory()), peer.seen()
        known = {one for one, _ in peer.recording.updates()}
        words = {"type": "text", "text": "x"}
        image = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
        for prompt in (
            {"mode": "_whisper", "content": [words]},
            {"mode": "append", "content": [words, image]},
        ):
            await peer.refused("session/new", cwd=cwd, mcpServers=[], systemPrompt=prompt)
        await peer.fence()
        told = [one for one, _ in Recording(lines=peer.recording.lines[since:]).updates()]
        check(set(told) <= known, f"sessions that nobody has opened: {told}")
        peer.needs(LIST)
        check(await listed(peer, cwd=cwd) == [], "a session was made")
