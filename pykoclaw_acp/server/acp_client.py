"""An ACP client, as sessions see it: what they tell it becomes updates and requests for
its peer.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any, Final

import structlog
from msgspec.structs import replace

from pykoclaw_acp import crash_points
from pykoclaw_acp.link.framing import MAX_LINE_OUT, MAX_LONG_LINE_OUT
from pykoclaw_acp.link.lines import base_id
from pykoclaw_acp.model.choices import Command, Selection
from pykoclaw_acp.model.events import Failure, PlanEntry, UserMessage, size
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.permissions import Decision, PermissionRequest
from pykoclaw_acp.model.session_environment import ClientEnvironment
from pykoclaw_acp.protocol import lenient, permissions, presentation, projection
from pykoclaw_acp.protocol.messages import ClientCapabilities, Implementation, InitializeParams
from pykoclaw_acp.protocol.pending_calls import PendingCalls
from pykoclaw_acp.protocol.presentation import Presentation
from pykoclaw_acp.protocol.terminals import Capability, Terminals
from pykoclaw_acp.protocol.updates import Update
from pykoclaw_acp.server.client_requests import ClientRequests
from pykoclaw_acp.server.pace import ProgressPace
from pykoclaw_acp.server.peer import Peer
from pykoclaw_acp.server.permission_requests import PermissionRequests
from pykoclaw_acp.server.update_lines import LONG, long_line, update_line
from pykoclaw_acp.sessions import contents
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.subscriber import Subscriber
from pykoclaw_acp.system.environment import of_sessions
from pykoclaw_acp.tasks import in_pieces

log: Final = structlog.get_logger()


class AcpClient:
    """Implements `sessions.ports.Client`, and `server.peer.Listener`, for the client
    behind a peer.
    """

    present = True
    only_declines = False

    def __init__(self, sessions: Sessions, peer: Peer) -> None:
        self.peer = peer
        peer.listener = self
        self.pages = False
        self._terminals: Terminals | None = None
        self._pending = PendingCalls()
        self._recalled: set[str] = set()  # requests that were announced, and not repeated yet
        self.introduction: InitializeParams | None = None  # with which `initialize` was answered
        self._shown = Presentation()
        self.requests = ClientRequests(peer, sessions)
        self._requests = PermissionRequests(self.requests, self.show)
        self.subscriber = Subscriber(sessions, self, peer.client_process, peer.front)
        self._progress = ProgressPace(self._progress_due, self.subscriber.pace)
        self.given = (
            None
            if peer.environment is None
            else ClientEnvironment.of(of_sessions(peer.environment))
        )
        self.subscriber.given = self.given
        self.logged_out = False  # by `logout`, until `authenticate`
        # Numbers of lines whose answer the client has not confirmed
        self._unconfirmed: set[int] = set()

    @property
    def name(self) -> str:
        """What the client calls itself."""
        return self.subscriber.name

    @property
    def introduced(self) -> bool:
        """Whether `initialize` was answered."""
        return self.introduction is not None

    @property
    def forms(self) -> bool:
        """Whether it can show a form."""
        return self._requests.forms

    @property
    def booleans(self) -> bool:
        """Whether it takes config options of the type `boolean`."""
        return self._shown.booleans

    @property
    def asks_together(self) -> bool:
        """Whether it shows several permission requests of a session at the same time."""
        return self.subscriber.traits.asks_together

    @property
    def cancels_when_absent(self) -> bool:
        """Whether it cancels a permission request because nobody is there to see it."""
        return self.subscriber.traits.cancels_when_absent

    @property
    def drops_plan(self) -> bool:
        """Whether it shows no plan any more when it sends a prompt."""
        return self.subscriber.traits.drops_plan

    def initialized(self, params: InitializeParams) -> None:
        """`initialize` was answered; it may be repeated."""
        self.peer.widen()
        client = lenient.decode(bytes(params.client_info), Implementation)
        self.subscriber.introduce(client.name, client.version)
        capabilities = lenient.decode(bytes(params.client_capabilities), ClientCapabilities)
        self._requests.forms = capabilities.elicitation.form is not None
        self.pages = capabilities.elicitation.url is not None
        shows = Capability.of(capabilities.meta)
        self._terminals = None if shows is None else Terminals(shows)
        thoughts = self.subscriber.sessions.showing.thoughts
        self._shown = Presentation.of(capabilities, thoughts=thoughts)
        self.introduction = params
        log.info(
            "Client connected",
            action="client_connected",
            client=client.name,
            version=client.version,
        )

    def log_out(self) -> None:
        """Give sessions no credential of the client's any more."""
        self.logged_out = True
        self.subscriber.given = None if self.given is None else self.given.without_keys()

    def log_in(self) -> None:
        """Give sessions what the client gives."""
        self.logged_out = False
        self.subscriber.given = self.given

    def request_key(self, number: int) -> str | None:
        """What names the request with this number for ever; None if nothing names the client beyond
        its connection.
        """
        return None if self.peer.key is None else f"{self.peer.key}:{number}"

    def expect_confirmation(self, number: int) -> None:
        """The line with this number will be answered by this daemon."""
        self._unconfirmed.add(number)

    def close(self) -> None:
        """The client is gone; its turns go on without it."""
        self._progress.stop()
        turns = self.subscriber.close()
        if self.introduced:
            log.info("Client left", action="client_left", client=self.name, turns=turns)

    def recall_requests(self, message_ids: Collection[str]) -> None:
        """The client has these requests of an earlier daemon, and what was shown before them."""
        self._recalled = {base_id(one) for one in message_ids}
        self._requests.shown.update(self._recalled)

    # --- sessions.ports.Client

    async def start_updates(self, session_id: str, seq: int, number: int) -> None:
        """The session's updates after `seq` follow."""
        self._pending.begin(session_id, seq)
        self._progress.begin(session_id, seq)
        await self.peer.follow_session(session_id, seq, number)

    def stop_updates(self, session_id: str) -> None:
        """The client follows the session no longer."""
        self.subscriber.drop(session_id)
        self._progress.stop(session_id)
        self.requests.send_soon(partial(self.peer.drop_session, session_id))

    def recall(self, session_id: str, logged: Logged) -> None:
        """What follows of a call that is pending in it comes as updates."""
        self._pending.note(session_id, logged)

    async def deliver(self, session_id: str, logged: Logged) -> None:
        """Send the event as an update; what no client could read is replaced by a note."""
        if replayed := self._is_replayed(session_id, logged):
            self.peer.gather()
        update = presentation.update(logged.seq, logged.event, self._shown)
        paced = self._progress.admit(session_id, logged, self.subscriber.traits, replayed=replayed)
        if update is None or not paced or self._passes_over(session_id, logged, update):
            await self.peer.move_cursor(session_id, logged.seq)
            return
        if self._terminals is not None:
            update = self._terminals.dress(session_id, logged.event, update)
        update = self._pending.dress(session_id, logged, update)
        await self._show_last_title(session_id, logged, update)
        await self.peer.update(session_id, logged.seq, await self._line(session_id, logged, update))
        crash_points.reached("update_sent")

    async def _show_last_title(self, session_id: str, logged: Logged, update: Update) -> None:
        """Say in words what the new title of a call says, if the user would not see that."""
        title = presentation.last_title(logged.event, update)
        if title is None or not self.subscriber.traits.first_titles:
            return
        if not self.subscriber.helps_itself(logged.turn_id):
            await self.show(session_id, f"{logged.seq}-title-shown", f"\n\n{title}\n\n")

    async def _line(self, session_id: str, logged: Logged, update: Update) -> bytes:
        """The line of an update; what no line to this client can hold is replaced by a note."""
        most = MAX_LONG_LINE_OUT if self.subscriber.traits.long_lines else MAX_LINE_OUT
        length = size(logged.event) if isinstance(logged.event, UserMessage) else 0
        if length <= most:
            line = (
                update_line(session_id, update)
                if length < LONG
                else await in_pieces(long_line(session_id, update))
            )
            if len(line) <= most:
                return line
        return update_line(session_id, projection.update(logged.seq, contents.cut(logged.event)))

    def _passes_over(self, session_id: str, logged: Logged, update: Update) -> bool:
        """Whether it is not to be in a replay; or the client gets the same words as the error with
        which its prompt is answered, and shows them.
        """
        if update.live_only:
            return self._is_replayed(session_id, logged)
        return (
            isinstance(logged.event, Failure)
            and self.subscriber.traits.shows_errors
            and self.subscriber.awaits(logged.turn_id)
        )

    def _is_replayed(self, session_id: str, logged: Logged) -> bool:
        known = self.subscriber.subscriptions.get(session_id)
        return known is not None and logged.seq <= known.begun_at

    def _progress_due(self, session_id: str, call: str) -> None:
        self.requests.send_soon(partial(self._deliver_late, session_id, call))

    async def _deliver_late(self, session_id: str, call: str) -> None:
        """Send the progress of a call that was passed over, without its place in the log: others that
        follow it were sent. Nothing is awaited until it is written, so that no end overtakes it.
        """
        logged = self._progress.take(session_id, call)
        if logged is None:
            return
        update = presentation.update(logged.seq, logged.event, self._shown)
        if update is None or self._passes_over(session_id, logged, update):
            return
        update = replace(update, meta=None)
        if self._terminals is not None:
            update = self._terminals.dress(session_id, logged.event, update)
        await self.peer.notify(update_line(session_id, update))

    async def offer(self, session_id: str, commands: tuple[Command, ...]) -> None:
        """Send the list of slash commands."""
        await self.peer.notify(update_line(session_id, projection.commands(commands)))

    async def show_choices(self, session_id: str, selection: Selection) -> None:
        """Send the list of config options: no event of the log, since nothing was chosen."""
        update = projection.choices_update(selection, booleans=self.booleans)
        await self.peer.notify(update_line(session_id, update))

    async def insert(self, session_id: str, message_id: str, text: str) -> None:
        """Send text that is no event of the log, since it says nothing new."""
        await self.peer.notify(update_line(session_id, projection.inserted(message_id, text)))

    async def show(self, session_id: str, message_id: str, text: str) -> None:
        """Send a note that the log does not have, or has in another form."""
        await self.peer.notify(update_line(session_id, projection.unlogged(message_id, text)))

    async def show_plan(self, session_id: str, entries: tuple[PlanEntry, ...]) -> None:
        """Send the plan once more: no event of the log, since nothing of it has changed."""
        await self.peer.notify(update_line(session_id, projection.plan(entries)))

    async def skip_own(self, session_id: str, seq: int) -> None:
        """The client has its own message already."""
        await self.peer.move_cursor(session_id, seq)

    async def request_permission(
        self, session_id: str, request: PermissionRequest
    ) -> dict[str, Any]:
        """Ask under the request's own id, or under ids that begin with it; when cancelled, withdraw
        it. What the client has not seen of the call is announced.
        """
        call = permissions.announcement(request)
        followed = self.subscriber.subscriptions.get(session_id)
        seen = 0 if followed is None else followed.cursor
        recalled = request.ask_id in self._recalled
        self._recalled.discard(request.ask_id)
        if call is not None and self._pending.announce(session_id, call, seen) and not recalled:
            await self.peer.notify(update_line(session_id, call))
        return await self._requests.ask(session_id, request, self.subscriber.traits)

    async def repeat_request(self, ask_id: str) -> None:
        """Send it under the same ids: one answer serves both."""
        await self.requests.repeat(ask_id)

    def close_request(self, ask_id: str, decision: Decision | None = None) -> None:  # noqa: ARG002
        """The request's outcome is in the database."""
        self.requests.acknowledge_answer(ask_id)

    # --- server.peer.Listener

    def confirm_updates(self, session_id: str, seq: int) -> None:
        """The client was shown the session's updates up to `seq`."""
        self.subscriber.confirm_updates(session_id, seq)

    def confirm_answer(self, number: int) -> None:
        """The client has the answer: if it was a turn's, the turn is over for it."""
        is_turns = self.subscriber.confirm_answer(number)
        if (
            not is_turns
            and number not in self._unconfirmed
            and (key := self.request_key(number)) is not None
        ):
            self.subscriber.confirm_earlier_answer(key)
        self._unconfirmed.discard(number)
