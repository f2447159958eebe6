"""`pykoclaw-acp sessions`: list, show, rename, archive and delete sessions."""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Any, Final

from pykoclaw_acp import terminal
from pykoclaw_acp.commands import show
from pykoclaw_acp.commands.daemon import ask, follow, follow_live
from pykoclaw_acp.commands.transcript import WAITS, TranscriptPrinter
from pykoclaw_acp.errors import CommandFailed
from pykoclaw_acp.model.contexts import entry_uuid

# s; running turns end first, also of a Claude that hangs, and a long log is deleted in steps
END_WAIT: Final = 300.0


def list_all(every: bool, limit: int, as_json: bool) -> None:
    """List sessions, those with the newest messages first."""
    found = ask("sessions/list", all=every, limit=limit)
    if as_json:
        terminal.as_json(found["sessions"])
        return
    if not found["sessions"]:
        terminal.line(
            "There is no session, or none outside of hidden channels (PYKOCLAW_HIDE_CHANNELS)."
            if every
            else "No session is listed. --all shows unused and archived ones; PYKOCLAW_HIDE_CHANNELS hides channels."
        )
        return
    asks = _open_requests()
    columns = ["id", "used", "state", "title", "directory"]
    rows = [
        [
            one["id"][:8],
            show.since(one["updatedAt"]),
            _state(one, asks),
            one["title"] or one["conversation"],
            one["cwd"] or "",
        ]
        for one in found["sessions"]
    ]
    terminal.table(columns, rows, right=("used",))
    if found["more"]:
        terminal.line(f"There are more; --limit shows more than {limit}.")


def show_one(session: str, as_json: bool) -> None:
    """Show details of a session."""
    details = ask("sessions/show", session=session)
    if as_json:
        terminal.as_json(details)
        return
    summary = details["summary"]
    asks = _open_requests()
    show.facts(
        [
            ("id", summary["id"]),
            ("title", show.one_line(summary["title"], "none")),
            ("conversation", summary["conversation"]),
            ("state", _state(summary, asks)),
            *(("waits for", _awaited(one)) for one in asks.get(summary["id"], ())),
            (
                "directory",
                " ".join(
                    filter(None, [summary["cwd"] or "unknown", *details["additionalDirectories"]])
                ),
            ),
            (
                "created",
                f"{show.when(summary['createdAt'])}, by {show.one_line(summary['client'], 'an unknown client')}",
            ),
            *_workspace(details["worker"]),
            ("last used", show.when(summary["updatedAt"])),
            ("model, mode", f"{details['model'] or 'default'}, {details['mode'] or 'default'}"),
            *_running(summary["id"], details.get("running", [])),
            ("while away", details["awayPolicy"] or "as the setting PYKOCLAW_AWAY_POLICY says"),
            ("terminal", _in_terminal(details["claudeSession"], details.get("account"))),
            (
                "history",
                f"{show.count(details['events'], 'event')}, {show.count(details['turnCount'], 'turn')}"
                + _of_others(details.get("otherTurns", 0)),  # an earlier daemon does not say it
            ),
        ]
    )
    if details["turns"]:
        terminal.line()
        terminal.table(
            ("turn", "begun", "state", "ended", "why", "prompt"),
            [
                (
                    entry_uuid(turn["id"])[:8],
                    show.when(turn["startedAt"]) if turn["startedAt"] else "",
                    f"{turn['state']}, rewound" if turn.get("rewoundAt") else turn["state"],
                    show.when(turn["endedAt"]) if turn["endedAt"] else "",
                    (turn["error"] or {}).get("kind") or turn["stopReason"] or "",
                    show.one_line(turn.get("prompt")),
                )
                for turn in details["turns"]
            ],
        )


def _in_terminal(claude: str | None, account: str | None) -> str:
    """How to go on there: Claude's own list has no session that an SDK began."""
    if claude is None:
        return "nothing yet"
    where = f", with the configuration of the account {account}" if account else ""
    return f"claude --resume {claude}{where}"


def _of_others(turns: int) -> str:
    """How many turns are not ours, and in no list."""
    return f", and {show.count(turns, 'turn')} that other programs have run" if turns else ""


def show_event(session: str, seq: int, as_json: bool) -> None:
    """Show what the log has at a position, whole; otherwise what it has next, and say so."""
    session = ask("sessions/show", session=session)["summary"]["id"]
    message = next(iter(follow(session, after=seq - 1)), None)
    if message is None:
        raise CommandFailed(f"There is nothing at {seq}: the session's history ends before that.")
    update, place = message["params"]["update"], message["params"]["seq"]
    if place != seq:
        terminal.complain(
            f"The history has nothing at {seq} alone. This is at {place}: what comes next, or the rest of a message."
        )
    if as_json:
        terminal.as_json(update)
        return
    content = update.pop("content", None)
    for part in content if isinstance(content, list) else [content] if content else []:
        block = part.get("content", part)
        terminal.prose(block.get("text") or json.dumps(block, ensure_ascii=False, indent=2))
        terminal.line()
    terminal.as_json({key: value for key, value in update.items() if key != "_meta"})


def tail(session: str, turns: int | None, live: bool) -> None:
    """Show the history as text, and with `live` new events, until interrupted or the session is
    closed. What waits for an answer is said at the end, with `live` before.
    """
    page = TranscriptPrinter(terminal.write, live=live)
    session = ask("sessions/show", session=session)["summary"]["id"]
    if live:
        _tell_awaited(session)
    told = follow_live(session, turns) if live else follow(session, turns=turns, asShown=True)
    try:
        for message in told:
            page.show(message["params"]["update"])
    except KeyboardInterrupt:
        return
    finally:
        page.end()
    if not live:
        _tell_awaited(session)


def rename(session: str, title: str) -> None:
    """Rename the session."""
    ask("sessions/rename", session=session, title=title)
    now = ask("sessions/show", session=session)["summary"]
    terminal.line(f"Renamed session {now['id'][:8]} to “{show.one_line(now['title'])}”.")


def archive(session: str) -> None:
    """Archive the session."""
    done = ask("sessions/archive", timeout=END_WAIT, session=session)
    cancelled = done.get("cancelled", 0)
    turns = (
        f" {show.count(cancelled, 'turn')} that ran or waited ended as cancelled."
        if cancelled
        else ""
    )
    begin = "Archived." if done.get("changed", True) else "The session was archived already."
    terminal.line(
        f"{begin}{turns} `sessions list --all` shows it, and clients can still open it; it stays out of"
        " lists until `sessions unarchive`."
    )


def unarchive(session: str) -> None:
    """Show the session in lists again."""
    done = ask("sessions/unarchive", session=session)
    terminal.line(
        "Unarchived: lists show the session again."
        if done.get("changed", True)
        else "The session was not archived; nothing was changed."
    )


def delete(session: str, sure: bool) -> None:
    """Delete a session's log, after confirmation."""
    summary = ask("sessions/show", session=session)["summary"]
    name = show.one_line(summary["title"], summary["conversation"])
    if not sure:
        if summary["busy"]:
            terminal.line("A turn of it is running; it will be cancelled.")
        terminal.confirm(f"Delete “{name}” ({summary['id']}) with its whole history?")
    done = ask("sessions/delete", timeout=END_WAIT, session=summary["id"])
    terminal.line(f"Deleted “{name}”. {_transcript(done)}")


def _transcript(done: dict[str, Any]) -> str:
    """What became of Claude's own transcript of a deleted session."""
    if left := done.get("undeleted"):
        return f"These files of Claude's own transcript could not be deleted: {', '.join(left)}"
    deleted = done.get("transcriptDeleted", False)
    if deleted is None:
        return "There was no transcript of Claude's own."
    how = "is deleted, too" if deleted else "stays where Claude keeps it"
    return f"Claude's own transcript {how}."


def _running(session: str, calls: list[dict[str, str]]) -> list[tuple[str, str]]:
    """What runs, and how it is stopped."""
    rows = [("runs", f"{show.one_line(one['title'])} ({one['id']})") for one in calls]
    how = f"to end one in the background: `pykoclaw-acp workers stop-task {session[:8]} ID`"
    return [*rows, ("", how)] if rows else []


def _workspace(worker: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Whether what acts in the directories counts, while a worker lives."""
    said = show.trust((worker or {}).get("workspace"))
    return [("what acts there", said)] if said else []


def _open_requests() -> dict[str, list[dict[str, Any]]]:
    """Pending permission requests by session. A prompt that waits for trust is in no history yet."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in ask("questions/list"):
        found.setdefault(one["session"], []).append(one)
    return found


def _awaited(request: dict[str, Any]) -> str:
    """An answer that a session waits for."""
    title = show.one_line(request["title"])
    return f"an answer: {title} (`pykoclaw-acp approve {request['id'][:12]}`)"


def _tell_awaited(session: str) -> None:
    """Say what a session waits for, beside its history."""
    for one in _open_requests().get(session, ()):
        terminal.line(f"{WAITS} for {_awaited(one)}", err=True)


def _state(summary: dict[str, Any], asks: Container[str]) -> str:
    if summary["id"] in asks:
        return "asking"
    if summary["busy"]:
        return "busy"
    for name, state in (
        ("prunedAt", "emptied"),
        ("auxiliary", "helper"),
        ("archivedAt", "archived"),
        ("closedAt", "closed"),
    ):
        if summary.get(name):  # an earlier daemon archives nothing
            return state
    if summary.get("background"):  # an earlier daemon does not say it
        return "background"
    if summary.get("elsewhere"):
        return "elsewhere"
    return "idle" if summary["promptedAt"] else "unused"


def stop_waiting(session: str) -> None:
    """Cancel the automatic resume of a session after a usage limit."""
    waited = ask("waits/stop", session=session)["waited"]
    terminal.line(
        "The session no longer resumes by itself."
        if waited
        else "The session does not wait for a usage limit."
    )
