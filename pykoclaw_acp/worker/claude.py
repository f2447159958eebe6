"""The Claude session of this worker: connect, run turns one at a time, interrupt, close.

One task reads all messages of the SDK's client. Results are matched to turns by the prompt's uuid,
since the CLI starts turns of its own when background work ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final
from uuid import uuid4

from claude_agent_sdk import ClaudeSDKClient, Message, ResultMessage, SystemMessage
from msgspec.structs import replace

from pykoclaw_acp.channel.files import WorkerFiles
from pykoclaw_acp.channel.frames import Background, EventFrame, Prompt, TurnEnded, TurnStarted
from pykoclaw_acp.channel.requests import StopSubagents, WorkerReply, WorkerRequest
from pykoclaw_acp.channel.spec import LaunchSpec
from pykoclaw_acp.channel.steering import Steer
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.worker import content, deciding, ending, ignored, raw_frames, results, sdk_private
from pykoclaw_acp.worker.choices import Choices
from pykoclaw_acp.worker.command_reports import instead_of
from pykoclaw_acp.worker.current_turns import CurrentTurns
from pykoclaw_acp.worker.database_calls import DatabaseCalls
from pykoclaw_acp.worker.ignored import IgnoredPrompts
from pykoclaw_acp.worker.in_order import InOrder
from pykoclaw_acp.worker.interrupts import Interrupts
from pykoclaw_acp.worker.long_work import LongWork
from pykoclaw_acp.worker.naming_calls import NamedCalls
from pykoclaw_acp.worker.outbox import Outbox
from pykoclaw_acp.worker.permissions import PermissionCallbacks
from pykoclaw_acp.worker.reported import Reported
from pykoclaw_acp.worker.reporting import Reporting
from pykoclaw_acp.worker.requests import TaskRequests
from pykoclaw_acp.worker.server_report import NO_REPORT
from pykoclaw_acp.worker.server_states import ServerStates
from pykoclaw_acp.worker.servers import STATES, Servers
from pykoclaw_acp.worker.silence import Silence
from pykoclaw_acp.worker.starting import Start
from pykoclaw_acp.worker.steering import Steered
from pykoclaw_acp.worker.transcript_end import TranscriptEnd
from pykoclaw_acp.worker.translate import is_turn_start
from pykoclaw_acp.worker.turn_ends import TurnEnds

INTERRUPT_AGAIN: Final = 0.5  # s; an interrupt before the CLI took the prompt up does nothing


class ClaudeSession:
    """The SDK client of one worker; `run()` reads until the CLI ends."""

    def __init__(
        self, spec: LaunchSpec, temporary: str, outbox: Outbox, calls: DatabaseCalls
    ) -> None:
        self._spec = spec
        self._temporary = temporary
        self._outbox = outbox
        self._translator = deciding.translator(spec.options)
        self._translator.side_events.usage.windows.update(spec.windows)
        self._named = NamedCalls(lambda: self.turns.ids, self._translator.running)
        self.permissions = PermissionCallbacks(
            spec.epoch, outbox.put, self._translator, self._tool_reported, self._turn_reported
        )
        self.permissions.named = self._named.asked
        self.permissions.lasting = not spec.options.restricted
        reports = Reporting(self._note, outbox)
        self.choices = Choices(spec.options, reports.tell, reports.underway)
        self.permissions.former_mode = self.choices.former_mode
        self.servers = Servers(spec, calls, WorkerFiles.plugins(temporary))
        said = spec.told.partition(STATES)[2]
        self._states = ServerStates(said, spec.options, self.permissions, self._report_background)
        self._states.is_idle = lambda: not self.busy
        self.orders = InOrder(self.prompt)
        self._quiet = False  # nobody reads the turn's answer
        self.client: ClaudeSDKClient | None = None  # of the CLI that is connected
        self.stderr: deque[str] = deque(maxlen=20)  # last lines of the CLI
        self.turns = CurrentTurns()
        self.silence = Silence(lambda: None if self._quiet else self.turns.running, self._put)
        self._reported = Reported()
        self.steered = Steered(spec.epoch, outbox.put)
        self._ignored = IgnoredPrompts(lambda one: one == self.turns.untaken, self._end_ignored)
        self._work = LongWork(temporary, self._translator, self._note)
        self._interrupts = Interrupts()
        self._requests = TaskRequests(self._translator.long, self._interrupts)
        self._ends = TurnEnds(spec, self._translator.side_events, self.servers, self.choices)
        self._transcript = TranscriptEnd()
        self.claude_session_id = spec.resume_session_id or spec.session_id
        self.fresh = spec.resume_session_id is None

    async def connect(self) -> None:
        """Start the CLI: resume, or begin under the ACP id; raises ClaudeNotStarted."""
        start = Start(self._spec, self._temporary, self.servers, self.permissions, self.stderr)
        self.client, self.claude_session_id, self.fresh = await start.connect()
        self._translator.side_events.connected(self.client)
        await self._transcript.connected(self.claude_session_id)
        await self.choices.connected(self.client)

    @property
    def alive(self) -> bool:
        """Whether the CLI can take a prompt; its death is noticed after some 10 ms."""
        return self.client is None or sdk_private.cli_lives(self.client)

    @property
    def background(self) -> int:
        """Number of background tasks, turns that the CLI has started itself, and sign-ins."""
        return self._work.tasks + self._states.signs_in + self.turns.is_own

    @property
    def told(self) -> str:
        """Identifies what was or will be said to the user about plugins and servers."""
        return f"{self.servers.told}{STATES}{self._states.told}".removesuffix(STATES)

    @property
    def busy(self) -> bool:
        """Whether a turn or background work runs, a prompt waits, or a permission request is pending."""
        return bool(self.turns or self.orders or self._work.tasks or self.permissions.pending)

    # --- commands

    async def ask(self) -> None:
        """Ask the CLI something, which it answers at once if it can take a prompt up."""
        assert self.client is not None
        await self.client.get_mcp_status()

    async def prompt(self, prompt: Prompt | Steer) -> None:
        """Send a prompt to Claude, for a turn of its own or for the one that runs; the end of its
        turn becomes a `turn_ended` frame.
        """
        if isinstance(prompt, Steer) and self.turns.prompted is not None:
            self.steered.add(prompt)
            await self._query(prompt)
            return
        await self.choices.settled()
        await self._interrupts.answered()
        if self.client is not None:
            turn_id, states = prompt.turn_id, self._states
            await self.orders.unless_stopped(turn_id, states.retry(self.client), None)
            report = instead_of(self.client, prompt.content, states, self._spec.session_id)
            made = await self.orders.unless_stopped(turn_id, report, NO_REPORT)
            self._translator.instead, states.shown = made.words, (turn_id, made.servers)
        self.turns.expect(prompt.turn_id)
        self._ends.failure = None
        if isinstance(prompt, Steer):
            self._quiet = False
            self.steered.say(prompt, prompt.turn_id)
        else:
            self.permissions.links, self._quiet = prompt.links, prompt.helper
            self._translator.side_events.quiet = prompt.helper
        await self._query(await self.choices.prepared(prompt))

    async def _query(self, prompt: Prompt | Steer) -> None:
        assert self.client is not None
        await self.client.query(content.messages(prompt.content, prompt.turn_id))

    async def interrupt(self, turn_id: str, why: str = "") -> None:
        """Interrupt the turn, repeatedly until its result comes. If it has ended: that with which Claude
        goes on by itself, or the subagents. A steering prompt is taken back; if it was taken up, as
        the CLI says a moment later, the turn that did is interrupted. `why`: as in the frame.
        """
        await self.orders.stop(turn_id)
        if (client := self.client) is None:
            return
        turn_id = self.turns.alone or turn_id  # which may have begun since the cancel
        if not self.turns:
            await self._requests.stop_subagents(client, why)
        while turn_id in [*self.turns.ids, *self.steered.ids]:
            if await self.steered.take_back(client, turn_id, self.claude_session_id):
                if turn_id == self.turns.prompted:  # what ran has ended meanwhile
                    self._end_dropped(turn_id)
                return
            if turn_id == self.turns.unbegun:
                answered = await self._requests.interrupt(client, why)
                if answered and turn_id == self.turns.unbegun:  # Claude has not gone on in it
                    self._end_turn(results.of_interrupt(self.claude_session_id))
                    return
            elif turn_id in self.turns.ids or self.steered.was_taken(turn_id):
                self._work.interrupted()
                await self._interrupts.send(client)
            await asyncio.sleep(INTERRUPT_AGAIN)

    async def give_up(self, failure: TurnFailure) -> None:
        """Interrupt the current turn; it ends with this failure, whatever its result is."""
        if turn_id := self.turns.prompted or self.turns.running:
            self._ends.failure = failure
            await self.interrupt(turn_id)

    async def carry_out(self, request: WorkerRequest) -> WorkerReply:
        """Carry out a request of the daemon."""
        if isinstance(request, StopSubagents) and (own := self.turns.alone):
            await self.interrupt(own, request.why)
        return await self._requests.carry_out(self.client, request)

    async def close(self, *, hooks: bool) -> None:
        """Interrupt what runs, and end the CLI with its background tasks; its `hooks` may run."""
        self._states.close()
        self._work.close()
        if (client := self.client) is not None:
            passed = not self.busy and await self._transcript.is_passed(self.claude_session_id)
            await ending.end(client, bool(self.turns), busy=self.busy, abrupt=passed or not hooks)

    # --- the pump

    async def run(self) -> None:
        """Process messages until the CLI ends; raises the SDK's error unless it ended by itself."""
        assert self.client is not None
        async for message, frame in raw_frames.received(self.client, self._named.rename):
            turn_id = self.turns.running
            self.silence.heard()
            try:
                self.steered.follow(frame, turn_id or self.turns.prompted)
                self.turns.follow(frame)
                if message is not None:
                    await self._take(message, frame)
            except Exception as error:  # noqa: BLE001  a message of a shape that we do not know must not end the session
                raw_frames.not_understood(type(message).__name__, error)
                if isinstance(message, ResultMessage):
                    self._end_anyway(turn_id, message)

    async def _take(self, message: Message, frame: raw_frames.RawFrame) -> None:
        if self.steered.note_taken(message, self.turns.running):
            return
        self._ignored.follow(message)
        self._transcript.follow(message)
        if isinstance(message, SystemMessage):
            self.choices.follow(message)
        self.choices.command_runs(frame)
        if is_turn_start(message):
            self._start_turn()
            self.turns.begun = True
            await self._look_at_servers(message)
        elif isinstance(message, ResultMessage):
            if not message.num_turns:  # no request to the model: a command of the CLI, it may be
                await self.choices.command_ran()  # who awaits the end reads what holds then
            self._end_turn(message)
            return
        elif await self._work.take(message):
            self._report_background()
        elif (error := results.api_error(message)) is not None:
            self._ends.api_error = error
        for event in self._work.begin(message, self.turns.running, self.turns.prompted):
            self._note(event)  # the turn begins with Claude's own words, by which imports know it
        events = self._translator.events(message, frame)
        if events and self.turns.running is None and self.turns.prompted is not None:
            self._start_turn()
        for event in events:
            self._put(event)
        if events:
            self._work.refresh(events)
            await self._reported.told()

    async def _look_at_servers(self, message: Message) -> None:
        if self.client is None or self.turns.running is None or self._quiet:
            return
        for event in await self._states.look(message, self.client, self.turns.running):
            self._put(event)

    def _report_background(self) -> None:
        self._outbox.put(Background(epoch=self._spec.epoch, running=self.background))

    def _note(self, event: Event) -> None:
        """Report an event outside of turns."""
        self._outbox.put(EventFrame(epoch=self._spec.epoch, turn_id=None, event=event))

    def _put(self, event: Event, turn_id: str | None = None) -> None:
        self._outbox.put(
            EventFrame(epoch=self._spec.epoch, turn_id=turn_id or self.turns.running, event=event)
        )

    def _start_turn(self) -> None:
        if self.turns.running is not None:
            return
        self.turns.running, self.turns.begun = self.turns.prompted or str(uuid4()), False
        self._translator.begin_turn()
        self._ends.api_error = None
        own = self.turns.prompted is None
        begun = TurnStarted(epoch=self._spec.epoch, turn_id=self.turns.running, background=own)
        self._outbox.put(begun)
        if self.turns.prompted is None:
            self._report_background()

    def _end_turn(self, result: ResultMessage) -> None:
        mine = self.turns.is_ended_by(result)
        turn_id, self.turns.running = self.turns.running, None
        self.claude_session_id, self.fresh = result.session_id, False
        if turn_id is None and not mine:
            return  # a stale notice after resume: a result without a turn
        if turn_id == self.turns.prompted and not mine:
            # A background turn ended under our prompt's name; the prompt's own result follows
            self.turns.running = turn_id
            for event in self._work.end(turn_id):
                self._put(event)
            return
        for event in [*self._translator.end_turn(result), *self._work.end(turn_id)]:
            self._put(event, turn_id)
        self._work.refresh()
        if turn_id is not None and turn_id != self.turns.prompted:
            self._report_end(turn_id, result)
            self._report_background()
        if mine and self.turns.prompted is not None:
            ended = self._report_end(self.turns.prompted, result)
            self.turns.expect(self.steered.turn_ended(ended))

    def _end_anyway(self, turn_id: str | None, result: ResultMessage) -> None:
        """End what the result ends, of which nothing more is understood."""
        prompted, mine = self.turns.prompted, self.turns.is_ended_by(result)
        for ended in self._ends.make_ends_without_result(turn_id, prompted, result, mine=mine):
            self.turns.running = None
            self._outbox.put(ended)
            if ended.turn_id == self.turns.prompted:
                self.turns.expect(self.steered.turn_ended(ended))
            else:
                self._report_background()

    def _end_ignored(self, turn_id: str) -> None:
        self._outbox.put(ended := ignored.ended(self._spec.epoch, turn_id, self.claude_session_id))
        self.turns.expect(self.steered.turn_ended(ended))

    def _end_dropped(self, turn_id: str) -> None:
        if self.turns.running == turn_id:
            self.turns.running = None
        ended = self.steered.report_dropped(turn_id, self.claude_session_id)
        self.turns.expect(self.steered.pop_taken() or self.steered.turn_ended(ended))

    def _report_end(self, turn_id: str, result: ResultMessage) -> TurnEnded:
        mine, last = turn_id == self.turns.prompted, self._transcript.uuid
        events, ended = self._ends.make_end(turn_id, result, mine=mine, last_uuid=last)
        for event in events:
            self._put(event, turn_id)
        self._outbox.put(ended := replace(ended, told=self.told))
        self._ends.last = turn_id
        return ended

    async def _tool_reported(self, tool_id: str, name: str, arguments: dict[str, Any]) -> str:
        """Wait until the tool call is reported, or report it; returns its turn."""
        await self._reported.until(lambda: self._translator.knows(tool_id))
        self._start_turn()
        for event in self._translator.ask_for(tool_id, name, arguments):
            self._put(event)
        assert self.turns.running is not None
        return self.turns.running

    async def _turn_reported(self) -> str | None:
        """The current turn, whose messages may come later than a request; None if there is none."""
        await self._reported.until(lambda: self.turns.running is not None)
        if self.turns:
            self._start_turn()
        return self.turns.running
