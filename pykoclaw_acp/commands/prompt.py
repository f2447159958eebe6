"""`pykoclaw-acp prompt`: a prompt through the daemon, in a terminal or a script."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
from collections.abc import Callable
from typing import Any, Final
from uuid import uuid4

from pykoclaw_acp import terminal
from pykoclaw_acp.commands.attach import PendingRequests
from pykoclaw_acp.commands.attended import Screen, answering, is_attended
from pykoclaw_acp.commands.daemon import NoSuchSession, ask, stream
from pykoclaw_acp.commands.permission_request import options, rendered
from pykoclaw_acp.commands.transcript import TranscriptPrinter
from pykoclaw_acp.errors import CommandFailed, DaemonNotRunning, OutputLost, StartupError
from pykoclaw_acp.front.call import given_environment, unfit
from pykoclaw_acp.front.resuming import Notifications, Resumed
from pykoclaw_acp.front.words_of_claude import WordsOfClaude, note
from pykoclaw_acp.model.turns import TurnState

STATUS: Final[dict[str, int]] = {
    TurnState.DONE: 0,
    TurnState.FAILED: 1,
    TurnState.CANCELLED: 4,
    TurnState.UNKNOWN: 5,
}
BLOCKED: Final = 6
INTERRUPTED: Final = 130
WAITS: Final = "Waiting for work in the background, and for what Claude says then. Ctrl-C ends the command only."
FOLLOW: Final = "Follow it: pykoclaw-acp attach "
GONE: Final = "No daemon can be reached any more."
MAY_RUN: Final = (
    "What has become of the prompt is not known here: its turn may go on, or may have ended. To see that, and to wait"
    " for the end, repeat the command with --key {key}; the prompt does not run twice."
)

_Result = dict[str, Any]


def main(
    session: str | None, text: str | None, *, detach: bool, key: str | None, as_json: bool
) -> int:
    """Send a prompt to a session, or to a new one in the working directory, and show the answer;
    returns the exit status.
    """
    _require_text(key)
    if text is None and session is not None:  # before a text is typed or read in vain
        session = _known(session)
    reads = text in (None, "-")
    if reads and terminal.is_terminal() and sys.stdin.isatty():
        terminal.line("Type the prompt, then Ctrl-D.", err=True)
    prompt = _input() if reads else text
    if why := unfit(prompt or ""):
        raise CommandFailed(why)
    present = not detach and not as_json and is_attended()
    view = _Page(present) if terminal.is_terminal() and not as_json else _Plain(as_json)
    key = key or str(uuid4())
    sending = _sending(
        {
            **({"new": os.getcwd()} if session is None else {"session": session}),
            "text": prompt,
            "detach": detach,
            "present": present,
            "whole": not detach,
            "idempotencyKey": key,
            "environment": given_environment(),
        },
        view.begin,
    )
    with view.answers():
        try:
            result = view.show(sending.messages())
        except KeyboardInterrupt:
            view.end_line()
            terminal.complain(
                "The command has ended. What runs, also in the background, continues."
                + _how_to_follow(session, view)
            )
            return INTERRUPTED
        except OutputLost:
            raise
        except StartupError as error:
            view.end_line()
            if not (sending.reached or (isinstance(error, CommandFailed) and not error.certain)):
                raise
            may_run = MAY_RUN.format(key=shlex.quote(key)) + _how_to_follow(session, view)
            return _tell_unknown(error, may_run, view.session, as_json=as_json)
    status = STATUS.get(result["state"], 0)
    # An earlier daemon does not say it.
    if result["state"] == TurnState.DONE and result.get("blocked"):
        status = BLOCKED
    if as_json:
        terminal.as_json(result)
        return status
    if result.get("goesOn"):
        terminal.complain(f"Work in the background goes on. {FOLLOW}{result['session'][:8]}")
    if session is None and not detach:
        terminal.complain(f"Go on with: pykoclaw-acp prompt {result['session'][:8]} TEXT")
    if detach:
        state = "Ended" if result["state"] in STATUS else str(result["state"]).capitalize()
        terminal.line(f"{state} in session {result['session']}, turn {result['turnId']}.")
    if result["error"] is not None:
        terminal.complain(f"pykoclaw-acp: {result['error']['message']}")
    elif result["state"] == TurnState.CANCELLED:
        terminal.complain("pykoclaw-acp: The turn was cancelled.")
    return status


def _require_text(key: str | None) -> None:
    try:
        (key or "").encode()
    except UnicodeEncodeError:  # another key that is none would become equal to it
        raise CommandFailed("--key is not valid UTF-8; nothing was sent.") from None


def _known(session: str) -> str:
    try:
        return str(ask("sessions/show", session=session)["summary"]["id"])
    except NoSuchSession as error:
        begin = f"pykoclaw-acp prompt --new {shlex.quote(session)}"
        raise CommandFailed(f"{error} To begin one with these words: {begin}") from None


def _input() -> str:
    """Standard input. Bytes that are no text are kept as such, in any locale, to be refused as in an
    argument.
    """
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    return sys.stdin.read()


def _sending(params: dict[str, Any], begin: Callable[[], None]) -> Resumed:
    """The prompt, which is sent again, under its key, if the daemon goes. `begin` is called before each
    time.
    """

    def send(after: int | None, served: bool) -> Notifications:
        begin()
        return stream("prompt", served=served, **params, after=after)

    return Resumed(send, DaemonNotRunning)


def _tell_unknown(error: StartupError, may_run: str, session: str | None, *, as_json: bool) -> int:
    """Say that the daemon may have taken the prompt, but has not answered; returns the exit status."""
    lost = isinstance(error, DaemonNotRunning) and error.stood is not None
    message = f"{GONE if lost else error} {may_run}"
    if as_json:
        unread = ("turnId", "stopReason", "text", "seq", "joined", "blocked", "goesOn")
        why = {"kind": error.kind, "message": message}
        state = TurnState.UNKNOWN
        terminal.as_json(
            {"session": session, "state": state, "error": why, **dict.fromkeys(unread)}
        )
    else:
        terminal.complain(f"pykoclaw-acp: {message}")
    return STATUS[TurnState.UNKNOWN]


def _how_to_follow(session: str | None, view: _View) -> str:
    """How to follow the turn, as a sentence behind another; empty if its session is not known."""
    known = shlex.quote(session) if session else (view.session or "")[:8]
    return f" {FOLLOW}{known}" if known else ""


class _View:
    """Shows what comes of one turn."""

    session: str | None = None  # its id, once that is known

    def begin(self) -> None:
        """The prompt is sent, or sent again: pending requests are told anew."""

    def answers(self) -> contextlib.AbstractContextManager[None]:
        """Context in which permission requests are answered, if this view can do that."""
        return contextlib.nullcontext()

    def show(self, messages: Notifications) -> _Result:
        """Show the messages; returns what the generator does."""
        while True:
            try:
                message = next(messages)
            except StopIteration as end:
                result: _Result = end.value
                self.ended(result)
                return result
            kind, params = message["method"].rpartition("/")[2], message["params"]
            self.session = params.get("session") or self.session
            if kind == "event":
                self.event(params)
            elif kind == "question":
                self.question(params)
            elif kind == "settled":
                self.settled(params)
            elif kind == "waits":
                self.waits()

    def end_line(self) -> None:
        """Let the next message begin a line, whatever is shown before it."""

    def event(self, params: dict[str, Any]) -> None:
        """An event of the session."""

    def question(self, question: dict[str, Any]) -> None:
        """A permission request: show it, and say how it can be answered."""
        self.end_line()
        how = f"Answer with: pykoclaw-acp approve {question['id'][:12]} OPTION\n"
        waits = terminal.shown("Claude waits for an answer.\n", "command")
        terminal.complain_text(
            terminal.joined(
                [waits, rendered(question), terminal.shown(how, "command"), options(question)]
            )
        )

    def settled(self, how: dict[str, Any]) -> None:
        """A permission request was settled."""

    def waits(self) -> None:
        """The turn has ended, and the work that it has left is waited for."""
        self.end_line()
        terminal.complain(WAITS)

    def ended(self, result: _Result) -> None:
        """The turn has ended."""


class _Plain(_View):
    """For scripts: Claude's words on standard output as they come, notes of the daemon on standard error."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._words = WordsOfClaude()
        self._shown = False
        self._newlines = ""  # held back, as the output ends with one
        self._begun = False  # a line, on which a message would stand where both outputs are one

    def end_line(self) -> None:
        if self._begun:  # on standard error, as standard output has Claude's words alone
            terminal.complain("")
        self._begun = False

    def event(self, params: dict[str, Any]) -> None:
        if self._quiet:
            return
        if note(params["update"]) == "note":
            self.end_line()
            terminal.complain(*params["update"]["content"]["text"].strip().splitlines())
        self._write(self._words.piece(params["update"]))

    def ended(self, result: _Result) -> None:
        if self._quiet:
            return
        if not self._shown:
            self._write(result["text"])
        if self._shown:
            terminal.prose("\n")
            self._begun = False

    def _write(self, text: str) -> None:
        rest = text.rstrip("\n")
        if rest:
            terminal.prose(self._newlines + rest)
            self._shown, self._begun, self._newlines = True, True, ""
        self._newlines += text[len(rest) :]


class _Page(_View):
    """For people: everything as it comes; requests are answered with a key, if somebody is there."""

    def __init__(self, present: bool) -> None:
        self._screen = Screen()
        self._page = TranscriptPrinter(self._screen.write)
        self._shown = False
        self._requests = PendingRequests(self._page, self._screen) if present else None

    def answers(self) -> contextlib.AbstractContextManager[None]:
        if self._requests is None:
            return super().answers()
        return answering(self._requests.read, self._screen)

    def begin(self) -> None:
        if self._requests is not None:
            self._requests.forget()

    def event(self, params: dict[str, Any]) -> None:
        if params["turnId"] is not None:
            self._shown = True
        self._page.show(params["update"])

    def end_line(self) -> None:
        self._page.end()

    def question(self, question: dict[str, Any]) -> None:
        if self._requests is None:
            super().question(question)
        else:
            self._requests.asked(question)

    def settled(self, how: dict[str, Any]) -> None:
        if self._requests is not None:
            self._requests.settled(how["id"], how)

    def ended(self, result: _Result) -> None:
        self._page.end()
        if not self._shown and result["text"]:
            self._screen.write(terminal.shown(result["text"].rstrip("\n") + "\n", "prose"))
