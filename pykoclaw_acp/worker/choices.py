"""What Claude runs with in this worker, permission mode, model, effort and fast mode: set by the
daemon, reported when Claude changes it itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final
from uuid import uuid4

import structlog
from claude_agent_sdk import ClaudeSDKClient, SystemMessage
from msgspec.structs import replace

from pykoclaw_acp.channel.choosing import SetConfig, SetMode, SetModel, chosen_with
from pykoclaw_acp.channel.frames import Prompt
from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.channel.steering import Steer
from pykoclaw_acp.model import choices, former_mode
from pykoclaw_acp.model.choices import Chosen, Config, Offer
from pykoclaw_acp.model.events import ConfigChanged, Event, ModeChanged, note_event
from pykoclaw_acp.neutral import neutral
from pykoclaw_acp.worker import fast_command, offering, sdk_private, set_choices
from pykoclaw_acp.worker.raw_frames import RawFrame
from pykoclaw_acp.worker.sdk_private import Applied
from pykoclaw_acp.worker.set_choices import Setting

LIMIT: Final = 5.0  # s; the CLI answers in milliseconds, also in the middle of a turn
AUTO_EFFORT: Final = "auto"  # that of the model, as `/effort` names it

log: Final = structlog.get_logger()


class Choices:
    """Applies what the daemon sets, and reports changes by `tell`, which may be `underway` then."""

    def __init__(
        self,
        options: WorkerOptions,
        tell: Callable[[Event], None],
        underway: Callable[[], bool] = lambda: False,
    ) -> None:
        self.offer = Offer()
        self.offer_changed: Callable[[], None] = lambda: None
        self._tell = tell
        self._underway = underway
        self._now = Chosen(
            options.permission_mode, options.model or choices.DEFAULT_MODEL, options.config
        )
        self._shown = self._now  # what the daemon has: also choices that are still to be set
        self._crossed = False  # a report was underway when a choice came: the log has it last
        self._before_plan = options.before_plan
        self._bypass = options.bypass
        self._unchecked = options.asked.unchecked_model
        self._client: ClaudeSDKClient | None = None
        self._connected = asyncio.Event()
        self._running: str | None = None  # the last turn's model, in Claude's words
        self._applied = Applied()
        self._typed = ("", "")  # the command that has not ended yet, and what follows it
        self._expected: list[str] = []  # modes that were set, whose notices have not come yet
        self._last: asyncio.Task[None] | None = None
        self._learning: asyncio.Task[None] | None = None

    @property
    def mode(self) -> str:
        """The permission mode that Claude is in."""
        return self._now.mode

    async def former_mode(self) -> str:
        """The mode used before planning, if the approval of a plan may and has to name it."""
        now = choices.selection(self._now, self.offer, bypass=self._bypass)
        former = former_mode.offered(self._before_plan, now)
        if former == choices.BYPASS.id and self._client is not None:
            return "" if await sdk_private.forbids_bypass(self._client, LIMIT) else former
        return former

    @property
    def model(self) -> str:
        """The id of the model that Claude uses."""
        return self._now.model

    @property
    def config(self) -> Config:
        """What it uses besides."""
        return self._now.config

    @property
    def running(self) -> str:
        """The model of the newest turn, in Claude's words if they are known."""
        return self._running or self._now.model

    async def connected(self, client: ClaudeSDKClient) -> None:
        """Learn from the connected CLI what it offers, and what of the choices it did not take."""
        info = await client.get_server_info() or {}
        self.offer = offering.of(info)
        mode = info.get("current_permission_mode")
        if isinstance(mode, str) and mode != self._now.mode:
            self._refused(f"Claude does not offer the mode `{self._now.mode}` here.", mode=mode)
        self._follow_fast_mode(info)
        self._client = client
        await self._check_model()
        await self._check_choices()
        self._connected.set()
        # Before the first prompt in the CLI's input, and nobody waits for the answer.
        self._learning = asyncio.create_task(self._begin(), name="begin-choices")

    def choose(self, frame: Setting) -> None:
        """Set the mode, the model or the config, after earlier choices."""
        self._shown = chosen_with(self._shown, frame)
        self._crossed = self._crossed or self._underway()
        self._start(lambda: self._choose(frame))

    def command_runs(self, frame: RawFrame) -> None:
        """Note what the user has typed, if this is what the CLI says to a command."""
        run = frame.get("local_command_run")
        if isinstance(run, dict):
            self._typed = (str(run.get("command")), str(run.get("args") or "").strip())

    async def command_ran(self) -> None:
        """Report what a command of the CLI has changed, such as `/model`, `/effort` or `/fast`, within
        `LIMIT`; later if the CLI takes longer.
        """
        (command, typed), self._typed = self._typed, ("", "")
        looking = self._start(lambda: self._look(command, typed))
        await asyncio.wait([looking], timeout=LIMIT)

    async def prepared(self, prompt: Prompt | Steer) -> Prompt | Steer:
        """The prompt to send: before one that is to turn fast mode on, it is chosen, as the CLI takes
        it from a command only then.
        """
        if self._now.config.fast or not fast_command.turns_on(prompt.content, self.offer):
            return prompt
        self._start(self._turn_fast_mode_on)
        await self.settled()
        return replace(prompt, content=[{"type": "text", "text": fast_command.ON}])

    async def _turn_fast_mode_on(self) -> None:
        config = replace(self._now.config, fast=True)
        if choices.model(self._now.model, self.offer).fast:
            await self._adopt(config)
        else:  # it is told with the model that follows the command
            await self._choose(SetConfig(epoch=0, config=config))
            self._shown = replace(self._shown, config=self._now.config)

    async def _adopt(self, config: Config) -> None:
        """Set a config that the daemon has not chosen, and tell it."""
        await self._choose(SetConfig(epoch=0, config=config))
        if self._now.config == config:
            self._changed(config=config)

    def _start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        self._last = asyncio.create_task(self._after(self._last, work), name="choose")
        return self._last

    async def _after(
        self, before: asyncio.Task[None] | None, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        await self._connected.wait()
        if self._learning is not None:
            await asyncio.wait([self._learning])
        await work()
        if self._last is asyncio.current_task() and (self._crossed or self._shown != self._now):
            self._show(self._now, again=self._crossed)  # Claude reported something else before it
            self._crossed = False

    async def settled(self) -> None:
        """Wait until all choices are set: they hold for the next prompt."""
        if self._last is not None:
            await asyncio.wait([self._last])

    def follow(self, message: SystemMessage) -> None:
        """Report changes that Claude makes itself: it leaves plan mode, or the user
        types `/model`.
        """
        mode = message.data.get("permissionMode")
        if message.subtype == "status" and isinstance(mode, str):
            if mode in self._expected:
                del self._expected[: self._expected.index(mode) + 1]
                if self._expected:
                    return
            if mode != self._now.mode:
                self._changed(mode=mode)
        elif message.subtype == "init":
            self._turn_runs_with(message.data.get("model"))
            self._follow_fast_mode(message.data)
        elif message.subtype == "commands_changed":
            offer = replace(self.offer, commands=offering.commands(message.data))
            if offer != self.offer:
                self.offer = offer
                self.offer_changed()

    def _turn_runs_with(self, model: object) -> None:
        if not isinstance(model, str):
            return
        before, self._running = self._running, model
        if before not in (None, model):
            self._changed(model=offering.named(self.offer, model))

    def _follow_fast_mode(self, info: dict[str, Any]) -> None:
        """Take fast mode back if Claude says that it cannot be had."""
        why = offering.why_not_fast(info)
        if why is not None and self._now.config.fast:
            self._refused(
                f"Claude does not offer fast mode here ({why}).",
                config=replace(self._now.config, fast=False),
            )

    async def _check_model(self) -> None:
        """Take back a model that was asked for unchecked, if Claude does not know it."""
        wanted = self._now.model
        known = offering.without_unknown(self.offer, wanted) if wanted == self._unchecked else None
        if known is None:
            return
        self.offer = known
        await self._choose(SetModel(epoch=0, model=choices.DEFAULT_MODEL))
        named = ", ".join(one.id for one in known.models)
        self._refused(
            f"Claude has no model `{neutral(wanted, 'command')}` here, so its default model is used. It has {named}.",
            model=choices.DEFAULT_MODEL,
        )

    async def _check_choices(self) -> None:
        """Take back what was asked for before anybody knew whether the model has it."""
        wanted = self._now
        if all(wanted.model not in (one.id, one.resolved) for one in self.offer.models):
            return  # nobody knows what it has
        kept = choices.fitting(wanted, self.offer)
        lacks = []
        if kept.mode != wanted.mode:
            lacks.append(f"the mode `{wanted.mode}`")
            await self._choose(SetMode(epoch=0, mode=kept.mode))
        if kept.config.effort != wanted.config.effort:
            lacks.append(f"the effort `{wanted.config.effort}`")
        if kept.config.fast != wanted.config.fast:
            lacks.append("fast mode")
        if kept.config != wanted.config:
            await self._choose(SetConfig(epoch=0, config=kept.config))
        if lacks:
            words = f"The model `{wanted.model}` does not have this here: {', '.join(lacks)}."
            self._refused(words, mode=kept.mode, config=kept.config)

    async def _choose(self, frame: Setting) -> None:
        assert self._client is not None
        before = self._now
        try:
            async with asyncio.timeout(set_choices.WAIT):
                await self._set(self._client, frame)
        except Exception as error:  # noqa: BLE001  the SDK raises bare ones
            words = set_choices.why_not(error)
            log.warning("Claude refused a choice", action="choice_refused", error=words)
            self._expected.clear()
            if isinstance(error, TimeoutError):
                await set_choices.send_back(self._client, frame, before)
            if isinstance(frame, SetMode):
                self._refused(words, mode=before.mode)
            elif isinstance(frame, SetModel):
                self._refused(words, model=before.model)
            else:
                self._refused(words, config=before.config)
        else:
            await self._learn()

    async def _set(self, client: ClaudeSDKClient, frame: Setting) -> None:
        self._becomes(chosen_with(self._now, frame))
        if isinstance(frame, SetMode):
            if frame.before_plan is not None:
                self._before_plan = frame.before_plan
            self._expected.append(frame.mode)
        elif isinstance(frame, SetModel):
            self._running = None
        await set_choices.send(client, frame)

    async def _begin(self) -> None:
        """Learn which model the first request goes to: without a choice that is the one of the user's
        Claude settings, or the one with which another program has continued the conversation.
        """
        await self._learn()
        model = self._applied.model
        if model is None or self._now.model != choices.DEFAULT_MODEL:
            return
        known = {one.id: one.resolved for one in self.offer.models}
        default = known.get(choices.DEFAULT_MODEL)
        if default and offering.plain(model) != offering.plain(default):
            self._changed(model=offering.named(self.offer, model))

    async def _learn(self) -> None:
        assert self._client is not None
        self._applied = Applied()
        try:
            async with asyncio.timeout(LIMIT):
                self._applied = await sdk_private.applied(self._client)
        except Exception as error:  # noqa: BLE001  the SDK raises bare ones
            log.info("The effort is not known", action="effort_unknown", error=str(error)[:200])

    async def _look(self, command: str, typed: str) -> None:
        before, its, config = self._applied, self._now.model, self._now.config
        await self._learn()
        effort, model, fast = self._applied
        named = typed if command == "model" else ""
        if any((one.id, one.resolved) == (named, model) for one in self.offer.models):
            self._running = model
            if named != its:  # though the same may run, as that which is the default
                self._changed(model=named)
        elif before.model is not None and model not in (None, before.model):
            self._turn_runs_with(model)  # the effort is this model's own, not chosen
        elif command == "effort" and typed in (AUTO_EFFORT, effort):
            config = replace(config, effort=None if typed == AUTO_EFFORT else typed)
        elif before.effort is not None and effort not in (None, before.effort):
            config = replace(config, effort=effort)
        if before.fast is not None and fast not in (None, before.fast):
            config = replace(config, fast=fast)
        if config != self._now.config:
            self._changed(config=config)
        fitting = choices.fitting(self._now, self.offer).config
        if self._now.model != its and fitting != config:
            await self._adopt(fitting)  # another model has not all that was chosen
        its_model = fast_command.model_for(self._now, self.offer) if command == "fast" else None
        if its_model is not None:
            await self._choose(SetModel(epoch=0, model=its_model))
            if self._now.model == its_model:
                self._changed(model=its_model)

    def _refused(self, words: str, **kept: Any) -> None:
        """Tell the user in words, and the daemon what holds instead."""
        self._tell(note_event(str(uuid4()), f"**{words}**"))
        self._changed(**kept)

    def _changed(self, **changes: Any) -> None:
        """Tell what Claude has changed; other choices that it has not taken yet stay."""
        self._becomes(replace(self._now, **changes))
        self._show(replace(self._shown, **changes))

    def _becomes(self, now: Chosen) -> None:
        self._before_plan = former_mode.followed(self._before_plan, self._now.mode, now.mode)
        self._now = now

    def _show(self, shown: Chosen, *, again: bool = False) -> None:
        before, self._shown = self._shown, shown
        if again or shown.mode != before.mode:
            self._tell(ModeChanged(shown.mode))
        self._tell(ConfigChanged(choices.selection(shown, self.offer, bypass=self._bypass)))
