"""What long tool calls show as long as they run: the output of commands, which the CLI writes to
files, and what subagents say. At most two updates a second for each call, fewer for old ones.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog

from pykoclaw_acp.model.events import COMMANDS, Event
from pykoclaw_acp.translation.long_calls import progress
from pykoclaw_acp.translation.tasks import MOST_SHOWN, ClaudeTask
from pykoclaw_acp.translation.translator import Translation
from pykoclaw_acp.worker import output_files
from pykoclaw_acp.worker.output_files import OutputFile

INTERVAL: Final = 0.5  # s; between two updates of a call
QUIET: Final = 1.0  # s; a command that ends within it shows its output once, at its end
SLOWER: Final = ((600.0, 2.0), (60.0, 1.0))  # s; from this age on, this interval
MOST_AT_END: Final = 30_000  # bytes of an output that are shown in the end, as of the CLI itself
END_WAIT: Final = 1.0  # s; for the output of a command that has ended

log: Final = structlog.get_logger()


class _Watched:
    """A call that runs: since when, what of its file is known, and when it may show more."""

    def __init__(self, now: float) -> None:
        self.since = now
        self.next = now + QUIET
        self.place: OutputFile | None = None
        self.mark: tuple[int, int] | None = None

    def lacks_file(self, task: ClaudeTask) -> bool:
        """Whether its file is not known, or is another one than was thought."""
        return self.place is None or (bool(task.id) and self.place.name != task.id)

    def later(self, now: float) -> None:
        age = now - self.since
        self.next = now + next((pace for limit, pace in SLOWER if age >= limit), INTERVAL)


class LiveOutput:
    """Shows the output of one worker's running commands; `put` takes the events, which have no
    turn.
    """

    def __init__(
        self, temporary: str, translation: Translation, put: Callable[[Event], None]
    ) -> None:
        self._temporary = temporary
        self._translation = translation
        self._put = put
        self._watched: dict[str, _Watched] = {}
        self._taken: set[str] = set()  # names of files of earlier calls
        self._task: asyncio.Task[None] | None = None

    def refresh(self) -> None:
        """Check which calls have begun or ended."""
        running = self._running()
        for call in self._watched.keys() - running.keys():
            self._leave(self._watched.pop(call))
        now = time.monotonic()
        for call in running:
            if call not in self._watched:
                self._watched[call] = _Watched(now)
        if self._watched and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._watch(), name="watch-output")

    async def finish(self, task_id: str) -> None:
        """A task has ended: its output as far as it is shown in the end."""
        task = self._translation.long.known.of(task_id)
        if task is None or task.agent is not None or not task.background or task.over:
            return
        try:
            async with asyncio.timeout(END_WAIT):
                found = await asyncio.to_thread(self._last_look, task_id)
        except TimeoutError:
            return
        if found is not None:
            task.output = found.output

    def close(self) -> None:
        """Watch no longer."""
        if self._task is not None:
            self._task.cancel()

    def _last_look(self, task_id: str) -> output_files.OutputSnapshot | None:
        places = output_files.find(self._temporary)
        path = next((one.path for one in places if one.name == task_id), None)
        return None if path is None else output_files.look(path, MOST_AT_END)

    def _running(self) -> dict[str, ClaudeTask]:
        """Calls of commands and subagents without an end."""
        calls = self._translation.long.known.calls
        return {
            call: calls[call]
            for call in self._translation.running
            if call in calls and not calls[call].over
        }

    def _leave(self, watched: _Watched) -> None:
        if watched.place is not None:
            self._taken.add(watched.place.name)

    async def _watch(self) -> None:
        while self._watched:
            await asyncio.sleep(INTERVAL)
            try:
                await self._tick()
            except Exception as error:  # noqa: BLE001  what a call shows meanwhile is worth no worker
                log.warning(
                    "Output cannot be shown", action="live_output_failed", error=repr(error)
                )
                return

    async def _tick(self) -> None:
        now = time.monotonic()
        due = [
            (task, self._watched[call])
            for call, task in self._running().items()
            if call in self._watched and self._watched[call].next <= now
        ]
        for task, watched in due:
            if task.agent is not None and task.story.news:
                task.story.news = False
                watched.later(now)
                self._put(progress(task))
        commands = [(task, watched) for task, watched in due if task.tool in COMMANDS]
        if any(watched.lacks_file(task) for task, watched in commands):
            unnamed = self._unnamed()
            places = await asyncio.to_thread(output_files.find, self._temporary)
            if (new := self._assign(places)) and unnamed:
                self._tell_apart(unnamed, new, await asyncio.to_thread(output_files.shells, new))
        for task, watched in commands:
            watched.later(now)
            if watched.place is None:
                continue
            path, mark = watched.place.path, watched.mark
            found = await asyncio.to_thread(output_files.look, path, MOST_SHOWN, mark)
            if found is None or task.call not in self._running():
                continue
            watched.mark = found.mark
            if found.output.text:
                task.output = found.output
                self._put(progress(task))

    def _assign(self, places: list[OutputFile]) -> list[OutputFile]:
        """Give calls the files that the CLI has named; returns the new ones, of which it has not.

        It names the call of a command in the foreground after 3 s only.
        """
        running = self._running()
        by_name = {place.name: place for place in places}
        self._taken &= by_name.keys()
        for call, watched in self._watched.items():
            if (task := running.get(call)) is not None and task.id:
                watched.place = by_name.get(task.id)
        mine = {one.place.name for one in self._watched.values() if one.place is not None}
        named = {task.id for task in self._translation.long.known.calls.values() if task.id}
        return [by_name[name] for name in by_name.keys() - mine - named - self._taken]

    def _unnamed(self) -> dict[str, str]:
        """What the calls run whose file nobody has named."""
        running = self._running()
        return {
            call: task.what
            for call, one in self._watched.items()
            if one.place is None
            and (task := running.get(call)) is not None
            and task.tool == "Bash"
            and not task.id
        }

    def _tell_apart(
        self, before: dict[str, str], new: list[OutputFile], commands: dict[str, str]
    ) -> None:
        """Give calls their files by what the shells run that write them. Nothing says which of two
        calls of one command a shell is of: also if one of them has ended since the look began.
        """
        calls, shells = Counter(before.values()), Counter(commands.values())
        unnamed = self._unnamed()
        for place in new:
            what = commands.get(place.name, "")
            if calls[what] == shells[what] == 1:
                [call] = (one for one, command in before.items() if command == what)
                if call in unnamed:
                    self._watched[call].place = place
