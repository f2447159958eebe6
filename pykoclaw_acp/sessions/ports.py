"""What sessions need from the outside: the journal, the workers, the clients. Implemented in store/, pool/, server/."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pykoclaw_acp.channel.frames import Numbered, ToWorker
from pykoclaw_acp.channel.options import WorkerWish
from pykoclaw_acp.model.choices import Command, Offer
from pykoclaw_acp.model.cursors import Cursor, CursorChange
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.permissions import Ask, Deadline, Question, RequestPolicy, Settled, Workspace
from pykoclaw_acp.model.trust import Trusted
from pykoclaw_acp.model.turns import Outcome, PromptKeys, SessionRecord, Turn
from pykoclaw_acp.system.clock import Clock
from pykoclaw_acp.trust.content import Content

if TYPE_CHECKING:
    from pykoclaw_acp.model.away import AwayPolicy


class Workers(Protocol):
    """The pool, as sessions see it."""

    def set_resume(self, acp_session_id: str, claude_session_id: str | None) -> None: ...
    def warm(self) -> None: ...
    def is_live(self, session_id: str) -> bool: ...
    def workspace(self, session_id: str) -> str | None: ...
    def forget(self, session_id: str) -> bool: ...
    async def acquire(self, wish: WorkerWish) -> int: ...
    def release(self, session_id: str) -> None: ...
    async def send(self, session_id: str, frame: ToWorker) -> None: ...
    def kill(self, session_id: str) -> None: ...
    def retire(self, session_id: str) -> None: ...
    def evict(self, session_id: str) -> None: ...
    async def stop(self, session_id: str) -> None: ...


class Workspaces(Protocol):
    """The directories that sessions work in, as they are on disk."""

    async def look(self, cwd: str, directories: Sequence[str], sources: Sequence[str]) -> Content:
        """What acts there, of what Claude reads with these setting sources."""

    async def unchanged(self, content: Content) -> bool:
        """Whether nothing that was looked at has changed since."""


class Journal(Protocol):
    """The database, as sessions see it. Every method that writes returns after the commit.

    While the store cannot be written, `create`, `accept`, `mark_closed`, `delete`, `append`, `set_away_policy`, `park`,
    `set_clock`, `keep_offer` and `prune` raise StoreUnavailable at once: they are asked for. The others wait, because
    they write down what has happened. All raise StoreClosed once the server stops.
    """

    def require_writable(self) -> None:
        """Raises StoreUnavailable while the store cannot be written."""

    async def writable(self) -> None:
        """Returns as soon as the store can be written."""

    @property
    def troubles(self) -> int:
        """How often the store could not be written, until now."""

    @property
    def clock(self) -> Clock:
        """The data directory's own, which decides about ages and deadlines."""

    async def create(self, record: SessionRecord) -> None:
        """A new session and its conversation."""

    async def find(self, session_id: str) -> SessionRecord | None:
        """The session that this id leads to, unless there is none or it was deleted."""

    async def moved(self, session_id: str, seq: int) -> int:
        """Where the place `seq` of this id's log has gone when logs were merged; itself if they never were."""

    async def name_taken(self, name: str) -> bool:
        """Whether a conversation, ours or another channel's, has this name."""

    async def adopt(self, record: SessionRecord) -> None:
        """What a load changes: its directories, and that it is open again."""

    async def mark_closed(self, session_id: str) -> None:
        """The client closed the session."""

    async def delete(self, session_id: str) -> None:
        """Nobody finds the session any more, and nothing of what was said in it is kept."""

    async def accept(self, turn: Turn) -> None:
        """A prompt was accepted: `queued`, durable."""

    async def begin(self, turn_id: str) -> None:
        """This daemon begins to prepare a `queued` turn for Claude: should it die over it, that is known."""

    async def not_begun(self, turn_id: str) -> None:
        """It does not any more, if the turn is still `queued`."""

    async def dispatch(self, turn: Turn, epoch: int, events: Sequence[Event]) -> list[int]:
        """`queued` to `dispatched`, durable, with the user's message; returns the events' seqs."""

    async def record(
        self, session_id: str, epoch: int, frames: Sequence[Numbered], outcomes: dict[str, Outcome]
    ) -> list[Logged]:
        """A worker's frames: events, turn states, questions, its acknowledged frame, in one transaction.

        `outcomes` are the ends of turns among the frames, by turn. A worker that is not the newest is refused.
        """

    async def finish(
        self, session_id: str, turn_id: str, outcome: Outcome, events: Sequence[Event]
    ) -> tuple[Outcome, list[int]]:
        """End a turn that no worker can end, with what is to be said about it; returns the end that counts.

        That is the end which the journal has already, if it has one: then nothing is said, and there are no seqs.
        Raises NoPlaceForEnd.
        """

    async def append(self, session_id: str, events: Sequence[Event], *, patient: bool = False) -> list[int]:
        """Events outside of any turn; `patient`: they have happened, and wait until they can be written."""

    async def offer(self, cwd: str) -> Offer | None:
        """What the last worker in this directory offered, or models of another; None if no worker ever ran."""

    async def keep_offer(self, cwd: str, offer: Offer) -> None:
        """What the newest worker in this directory offers."""

    async def unused(self, before: int) -> list[str]:
        """Sessions whose events may be deleted: never prompted by a person, not used since `before` (ms, own clock)."""

    async def prune(self, session_id: str, before: int) -> bool:
        """Delete what was said and hide the session, if it is still unused; its id, directory and name stay."""

    async def settle(self, settled: Settled, used: str | None = None) -> None:
        """A permission question is answered, or moot; `used`: the parked question whose answer this is, once."""

    async def set_clock(self, ask_id: str, policy: RequestPolicy, deadline: Deadline | None) -> None:
        """Which away policy an open question is under, and until when."""

    async def park(self, session_id: str, ask: Ask, events: Sequence[Event]) -> list[int]:
        """An open question gives up its worker and waits on, with what is to be said about it."""

    async def answer_parked(self, settled: Settled, turn: Turn) -> None:
        """A parked question is answered: with it, durable, the prompt that tells Claude so is `queued`."""

    async def trusted(self, paths: Collection[str]) -> list[Trusted]:
        """What the user has said of these directories and of those above them."""

    async def trust_first_use(self, path: str, workspaces: Sequence[Workspace]) -> None:
        """The first use of a directory that is trusted with what it holds then: this."""

    async def ask(self, session_id: str, ask: Ask) -> None:
        """A question that no worker asks."""

    async def settle_workspaces(self, settled: Settled, trusted: Sequence[Workspace]) -> None:
        """A question about trust is answered: these are trusted from now on."""

    async def workspace_answers(self, turn_id: str) -> list[Question]:
        """Questions about trust that were asked for this turn and are answered, the newest first."""

    async def questions(self, session_id: str | None = None) -> list[Question]:
        """Questions that wait, and answered ones whose turn still goes on with the answer; the oldest first."""

    async def settled(self, ask_ids: Sequence[str]) -> list[Question]:
        """Those of the questions that are settled, but for parked ones: their answer went to another turn."""

    async def matching(self, prefix: str) -> list[Question]:
        """Questions whose id begins so, also those that are settled; at most 20."""

    async def is_open(self, ask_id: str) -> bool:
        """Whether the question waits for an answer."""

    async def set_away_policy(self, session_id: str, policy: AwayPolicy | None, *, patient: bool = False) -> None:
        """The session's own away policy; None: that of the settings. `patient`: it holds already."""

    async def answered(self, turn_id: str) -> None:
        """A client has got the turn's response."""

    async def ended_turns(
        self, session_id: str, column: Literal["request_key", "idempotency_key"], value: str
    ) -> list[tuple[Turn, Outcome]]:
        """Clients' turns that have ended, by one of their keys, which are unique; their content is left out."""

    async def newest_turn(self, session_id: str, since: int) -> tuple[Turn, Outcome] | None:
        """The session's last prompt of a client, if it has ended, and not before `since` (ms, own clock)."""

    async def has_unfinished(self, session_id: str, keys: PromptKeys) -> bool:
        """Whether a turn without an end has one of these keys, the fingerprint apart."""

    async def turns_of_front(self, session_id: str, front: str) -> list[str]:
        """Ids of the turns that a front asked for."""

    async def find_created(self, request_key: str) -> str | None:
        """Id of the session that this `session/new` has made."""

    async def change_cursors(self, changes: Sequence[CursorChange]) -> None:
        """How far clients were shown sessions, and who goes on from where, in one transaction."""

    async def cursors(self, session_id: str, client: str) -> list[Cursor]:
        """How far the instances of a client were shown the session."""

    async def instances(self) -> list[str]:
        """Those that have cursors."""

    async def age_cursors(self, ended: Sequence[str], living: Sequence[str], before: int) -> None:
        """These instances have ended, those live; what was left before that (ms, own clock) is dropped."""

    async def read(self, session_id: str, after: int, limit: int) -> list[Logged]:
        """The log from `after` on, in order."""

    async def note_time(self) -> None:
        """Write down where the own clock stands, for the next boot."""


class Client(Protocol):
    """One attached client, as sessions see it; what it raises ends its attachment, never the session.

    `session_id` is in each case the id under which the client was attached, which may be an alias.
    """

    @property
    def name(self) -> str:
        """What it calls itself."""

    @property
    def present(self) -> bool:
        """Whether it can be asked: one that only follows cannot, and is nobody when it comes to questions."""

    @property
    def forms(self) -> bool:
        """Whether it can be asked a question that is a form."""

    def settled(self, ask_id: str) -> None:
        """No answer of this client is needed any more, and the database knows it; told also to who answered."""

    async def attached(self, session_id: str, seq: int, number: int) -> None:
        """What follows `seq` will be delivered; `number` is the client's line that asked for everything, or 0."""

    def detached(self, session_id: str) -> None:
        """The session was closed: nothing more of it will be delivered."""

    async def deliver(self, session_id: str, logged: Logged) -> None:
        """Show an event; returns when the client's buffer has room."""

    async def offer(self, session_id: str, commands: tuple[Command, ...]) -> None:
        """Show which slash commands there are."""

    async def end_line(self, session_id: str, seq: int) -> None:
        """Send an empty line after what was said up to `seq`."""

    async def passed(self, session_id: str, seq: int) -> None:
        """The event at `seq` is the client's own message, which it has already."""

    async def ask(self, session_id: str, question: Ask) -> dict[str, Any]:
        """Ask; the answer is ACP's `outcome` object, that to a form has `action` and `content`.

        Cancelling it withdraws the question.
        """
