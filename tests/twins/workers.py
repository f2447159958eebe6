"""The twin of `sessions.ports.Workers`: workers that take every frame and do nothing with it."""

from __future__ import annotations

from pykoclaw_acp.channel.frames import Interrupt, Prompt, ToWorker, TurnEnded
from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.model.branches import Branch
from pykoclaw_acp.model.turns import TurnState
from tests.twins.database import MemoryDatabase


class MemoryWorkers:
    """`prompted`: the turns whose prompts have left, each with its state in the journal at that
    moment.
    """

    def __init__(self, database: MemoryDatabase) -> None:
        self.database = database
        self.live: dict[str, int] = {}  # epochs, by session
        self.prompted: list[tuple[str, TurnState]] = []
        self.interrupted: list[str] = []
        self.killed: list[str] = []

    def set_resume(
        self, acp_session_id: str, claude_session_id: str | None, branch: Branch | None = None
    ) -> None:
        pass

    def steers(self, session_id: str) -> bool:
        return False

    def warm(self) -> None:
        pass

    @property
    def has_room(self) -> bool:
        return True

    def is_live(self, session_id: str) -> bool:
        return session_id in self.live

    def takes_blocks(self, session_id: str) -> bool:
        return True

    def workspace(self, session_id: str) -> str | None:
        return "" if session_id in self.live else None

    def works(self, session_id: str) -> bool:
        return False

    def note_ended(self, session_id: str, ended: TurnEnded) -> None:
        pass

    def forget(self, session_id: str) -> bool:
        return session_id not in self.live

    async def acquire(self, session_id: str, options: WorkerOptions) -> int:
        if session_id not in self.live:
            self.live[session_id] = self.database.next_epoch(session_id)
        return self.live[session_id]

    def attend(self, session_id: str, *, attended: bool) -> None:
        pass

    def release(self, session_id: str) -> None:
        pass

    async def send(self, session_id: str, frame: ToWorker) -> None:
        if session_id not in self.live:
            raise ConnectionResetError
        if isinstance(frame, Prompt):
            self.prompted.append((frame.turn_id, self.database.turns[frame.turn_id].state))
        if isinstance(frame, Interrupt):
            self.interrupted.append(frame.turn_id)

    def kill(self, session_id: str) -> None:
        self.killed.append(session_id)
        self.live.pop(session_id, None)

    def retire(self, session_id: str) -> None:
        self.live.pop(session_id, None)

    def evict(self, session_id: str) -> None:
        self.live.pop(session_id, None)

    async def stop(self, session_id: str) -> None:
        self.live.pop(session_id, None)
