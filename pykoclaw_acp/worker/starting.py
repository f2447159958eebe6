"""Start of the CLI: the ways to begin Claude's session, and why none of them worked."""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections import deque
from functools import partial
from typing import Any, Final
from uuid import NAMESPACE_OID, UUID, uuid4, uuid5

import structlog
from claude_agent_sdk import CanUseToolShadowedWarning, ClaudeSDKClient, CLINotFoundError

from pykoclaw_acp.channel.spec import LaunchSpec
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import ClaudeNotStarted
from pykoclaw_acp.system import disks, transcript_files
from pykoclaw_acp.worker import options, sdk_private
from pykoclaw_acp.worker.connecting import CliEnded, connect
from pykoclaw_acp.worker.failures import in_one_line, lacks, refused_to_root
from pykoclaw_acp.worker.permissions import PermissionCallbacks
from pykoclaw_acp.worker.servers import Servers

_IN_USE: Final = re.compile(r"Session ID \S+ is already in use")
_NOTHING_TO_RESUME: Final = ("No conversation found", "No message found")

log: Final = structlog.get_logger()


class Start:
    """One start of the CLI; `stderr` gets the lines that it writes there, also later."""

    def __init__(
        self,
        spec: LaunchSpec,
        temporary: str,
        servers: Servers,
        permissions: PermissionCallbacks,
        stderr: deque[str],
    ) -> None:
        self._spec = spec
        self._temporary = temporary
        self._servers = servers
        self._permissions = permissions
        self._stderr = stderr

    async def connect(self) -> tuple[ClaudeSDKClient, str, bool]:
        """The connected client, the id of Claude's session, and whether that is a new one.

        Raises ClaudeNotStarted.
        """
        if not os.path.isdir(self._spec.options.cwd):  # noqa: ASYNC240  nothing else runs yet
            raise ClaudeNotStarted(
                ErrorKind.CWD_MISSING,
                f"The session's directory {self._spec.options.cwd} went away while Claude started. Put it back, and "
                "send the prompt again.",
            )
        await self._servers.load()
        for begin in self._beginnings():
            if await _is_obstructed(begin):
                log.warning("A transcript is not a file", action="transcript_obstructed")
                continue
            try:
                client = await self._connect(begin)
            except Exception as error:
                words = f"{error} {' '.join(self._stderr)}"
                if isinstance(error, CLINotFoundError) or not _is_refused(begin, words):
                    raise self._not_started(error) from error
                log.info(
                    "claude refused to begin so",
                    action="claude_begin_refused",
                    begin=next(iter(begin)),
                )
            else:
                fresh = "session_id" in begin
                return client, begin["session_id" if fresh else "resume"], fresh
        raise ClaudeNotStarted(
            ErrorKind.CONTEXT_LOST,
            "Claude no longer has this conversation's transcript, or the place in it where it was to go on, so it "
            "cannot go on with its memory. "
            "The history can still be read; start a new session to go on.",
        )

    def _beginnings(self) -> list[dict[str, Any]]:
        """Ways to begin, in order: a worker that was killed in its first turn may have left part of
        a transcript.
        """
        if (branch := self._spec.branch) is not None and not branch.source:
            return [{"session_id": str(uuid4())}]
        if branch is not None:
            off: dict[str, Any] = {"resume": branch.source, "fork_session": True}
            if branch.at is not None:
                off["resume_session_at"] = branch.at
            own = _claude_id(self._spec.session_id)
            # Under the id of its source, the CLI would write the branch into the source's transcript.
            ids = [own, str(uuid4())] if own != branch.source else [str(uuid4())]
            return [off | {"session_id": one} for one in ids]
        if (known := self._spec.resume_session_id) is not None:
            # Claude takes a title, too, which might be that of another session.
            return [{"resume": known}] if _is_uuid(known) else []
        own = _claude_id(self._spec.session_id)
        return [{"session_id": own}, {"resume": own}, {"session_id": str(uuid4())}]

    async def _connect(self, begin: dict[str, Any]) -> ClaudeSDKClient:
        self._stderr.clear()
        with options.private_files(self._spec, self._servers.outside, self._temporary) as files:
            chosen = options.options(
                self._spec,
                self._temporary,
                begin,
                self._servers,
                files,
                can_use_tool=self._permissions.can_use_tool,
                on_stderr=self._stderr.append,
            )
            # It tells at each start of what is allowed unasked, which it is on purpose.
            warnings.filterwarnings("ignore", category=CanUseToolShadowedWarning)
            client = ClaudeSDKClient(chosen)
            await connect(client)
        sdk_private.take_elicitations(client, self._permissions.elicit)
        return client

    def _not_started(self, error: Exception) -> ClaudeNotStarted:
        if isinstance(error, CLINotFoundError) and not os.path.exists(__file__):
            return ClaudeNotStarted(
                ErrorKind.CLI_NOT_FOUND,
                f"{error}. pykoclaw-acp was reinstalled in another place: `pykoclaw-acp restart` makes the daemon use "
                "the new installation.",
            )
        if isinstance(error, CLINotFoundError):
            return ClaudeNotStarted(
                ErrorKind.CLI_NOT_FOUND,
                f"{error}. Set PYKOCLAW_CLI_PATH, or install claude-agent-sdk again.",
            )
        said = self._stderr[-1] if self._stderr else (str(error) or repr(error)).splitlines()[0]
        remedy = refused_to_root(" ".join(self._stderr))
        if remedy is not None:
            return ClaudeNotStarted(ErrorKind.START_FAILED, remedy)
        found = lacks(error, " ".join(self._stderr))
        if found is not None:
            return ClaudeNotStarted(
                found[0], f"Claude could not be started: {found[1]} ({said[:300]})"
            )
        if isinstance(error, CliEnded):
            words = f" It said: {in_one_line(self._stderr[-1])}." if self._stderr else ""
            return ClaudeNotStarted(
                ErrorKind.CLI_ENDED,
                f"Claude ended at once, with status {error.status}, instead of taking a prompt.{words} Check that "
                f"PYKOCLAW_CLI_PATH is the `claude` program; `pykoclaw-acp doctor` runs it.",
            )
        return ClaudeNotStarted(
            ErrorKind.START_FAILED, f"Claude could not be started: {said[:300]}"
        )


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _claude_id(session_id: str) -> str:
    """A UUID for a new Claude session; an id of an adopted database may not be one."""
    return str(UUID(session_id)) if _is_uuid(session_id) else str(uuid5(NAMESPACE_OID, session_id))


async def _is_obstructed(begin: dict[str, Any]) -> bool:
    """Whether the CLI would open something else in place of a transcript, and perhaps wait for it."""
    projects = transcript_files.folder()
    ids = [begin[key] for key in ("resume", "session_id") if key in begin]
    look = partial(transcript_files.is_obstructed, projects)
    with contextlib.suppress(TimeoutError):  # then the CLI waits for the disk
        return await disks.quick_call(projects, lambda: any(map(look, ids)))
    return False


def _is_refused(begin: dict[str, Any], words: str) -> bool:
    """Whether the CLI, which has said this, has no such session, or has one under the new one's id."""
    if "session_id" in begin and _IN_USE.search(words) is not None:
        return True
    return "resume" in begin and any(one in words for one in _NOTHING_TO_RESUME)
