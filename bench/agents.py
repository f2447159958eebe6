"""Who is measured, driven alike: the product, a peer, and the bare SDK, which answers in the same
form.

Without an event loop, so that measuring costs little; updates are only looked into when their turn
is over.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ANSWER_WAIT: Final = 120  # s; SIGALRM then, which ends the run
READ: Final = 1 << 18  # bytes


@dataclass(slots=True)
class Turn:
    """A request's life (s, monotonic). `pieces`: when text arrived, and of how many words."""

    sent: float
    ended: float = 0.0
    stopped: float = 0.0
    pieces: list[tuple[float, int]] = field(default_factory=list)

    @property
    def words(self) -> list[float]:
        """When each word arrived; scripts here send one in a delta."""
        return [at for at, count in self.pieces for _ in range(count)]


class Agent:
    """An initialized ACP agent; `started` and `ready` (s, monotonic) are when that began and was
    done.
    """

    def __init__(self, command: list[str], environment: dict[str, str], cwd: Path) -> None:
        self._cwd, self._ids = str(cwd), 0
        self.started = time.monotonic()
        self._process = subprocess.Popen(
            command,
            bufsize=READ,
            stdin=-1,
            stdout=-1,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=cwd,
        )
        self.ready = self.wait(self.begin("initialize", protocolVersion=1, clientCapabilities={}))[
            0
        ].ended

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def begin(self, method: str, **params: Any) -> Turn:
        """Send a request without reading anything; `wait` comes before the next one."""
        self._ids += 1
        return Turn(
            self._send({"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params})
        )

    def wait(
        self, turn: Turn, session: str = "", stop_after: int | None = None
    ) -> tuple[Turn, dict[str, Any]]:
        """Read until the answer; cancel the session at that many pieces of text. Raises
        RuntimeError for an error.
        """
        pieces: list[tuple[float, bytes]] = []
        for line in self._lines():
            turn.ended = time.monotonic()
            if b"_message_chunk" in line:
                pieces.append((turn.ended, line))
                if len(pieces) == stop_after:
                    params = {"sessionId": session}
                    turn.stopped = self._send(
                        {"jsonrpc": "2.0", "method": "session/cancel", "params": params}
                    )
            elif (
                b'"session/update"' not in line
                and (answer := json.loads(line)).get("id") == self._ids
            ):
                break
        else:
            raise RuntimeError(f"{self._process.args!r} ended without an answer")
        if "result" not in answer:
            raise RuntimeError(f"{self._process.args!r} answered {answer}")
        turn.pieces = [(at, _words(line)) for at, line in pieces]
        return turn, answer["result"]

    def new(self) -> tuple[str, float]:
        """A session's id, and the seconds until it was there."""
        turn, result = self.wait(self.begin("session/new", cwd=self._cwd, mcpServers=[]))
        return result["sessionId"], turn.ended - turn.sent

    def reopen(self, method: str, session: str) -> Turn:
        """`session/load` or `session/resume`."""
        return self.wait(self.begin(method, sessionId=session, cwd=self._cwd, mcpServers=[]))[0]

    def begin_prompt(
        self, session: str, text: str, stop_after: int | None = None, *before: dict[str, Any]
    ) -> Turn:
        """Send a prompt without reading anything, with blocks before its text; the bare SDK stops
        by itself.
        """
        prompt = [*before, {"type": "text", "text": text}]
        return self.begin(
            "session/prompt", sessionId=session, prompt=prompt, _meta={"stopAfter": stop_after}
        )

    def prompt(
        self, session: str, text: str, stop_after: int | None = None, *before: dict[str, Any]
    ) -> Turn:
        """A whole turn, cancelled at that many pieces of text. Raises RuntimeError if it ends
        otherwise.
        """
        turn, result = self.wait(
            self.begin_prompt(session, text, stop_after, *before), session, stop_after
        )
        if result["stopReason"] != ("cancelled" if stop_after else "end_turn"):
            raise RuntimeError(f"the turn ended with {result}")
        return Turn(turn.sent, **result["turn"]) if "turn" in result else turn

    def wait_for_text(self, words: bytes) -> float:
        """Read until an update that nobody asked for holds the words; gives when that was."""
        for line in self._lines():
            if words in line:
                return time.monotonic()
        raise RuntimeError(f"{self._process.args!r} ended without {words!r}")

    def close(self) -> float:
        """Close its input and wait for its exit; gives the seconds that took."""
        assert self._process.stdin is not None
        at = time.monotonic()
        self._process.stdin.close()
        self._process.wait(ANSWER_WAIT)
        return time.monotonic() - at

    def _lines(self) -> Iterator[bytes]:
        """Lines of the agent, until it ends; SIGALRM ends a run that waits for too long."""
        assert self._process.stdout is not None
        signal.alarm(ANSWER_WAIT)
        try:
            # "yield from" would close the stream together with this generator.
            while line := self._process.stdout.readline():
                yield line
        finally:
            signal.alarm(0)

    def _send(self, message: dict[str, Any]) -> float:
        assert self._process.stdin is not None
        at = time.monotonic()
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()
        return at


def _words(update: bytes) -> int:
    return len(json.loads(update)["params"]["update"]["content"].get("text", "").split())
