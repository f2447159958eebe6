"""The SDK's options for a worker, from its launch specification."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import claude_agent_sdk
from claude_agent_sdk import CanUseTool, ClaudeAgentOptions, CLINotFoundError
from claude_agent_sdk.types import (
    EffortLevel,
    PermissionMode,
    SettingSource,
    SystemPromptFile,
    SystemPromptPreset,
)

from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.channel.spec import LaunchSpec
from pykoclaw_acp.system import credentials
from pykoclaw_acp.system.lineage import WORKER
from pykoclaw_acp.worker import gateway, profile, rules
from pykoclaw_acp.worker.servers import Servers

# Bytes of one CLI line; the default of 1 MiB ends a session at a large image
MAX_BUFFER: Final = 256 * 1024 * 1024
TASK_TOOLS: Final = "CLAUDE_CODE_ENABLE_TODO_TOOLS"
WRAPPER: Final = Path(__file__).with_name("claude-exec")
# Tools whose promise this agent cannot keep: timers die with an idle worker.
DISALLOWED: Final = ["CronCreate", "CronList", "CronDelete", "ScheduleWakeup"]


# For untrusted directories: only CLAUDE.md takes effect, as that of an added directory.
_WITHOUT: Final = {
    profile.READ_ADDED_DIRECTORIES: "1",
    "CLAUDE_CODE_IGNORE_PERSISTED_TRUST": "1",  # a second lock: the CLI itself then lets no project setting act
}


def sources(spec: LaunchSpec) -> list[str]:
    """Claude's setting sources; an untrusted directory has none."""
    return [
        one for one in spec.options.setting_sources if one == "user" or not spec.options.restricted
    ]


def find_cli(configured: str | None) -> str:
    """Path of the claude CLI: the configured one, else the SDK's own; raises CLINotFoundError."""
    bundled = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
    path = Path(configured) if configured else bundled
    if not os.access(path, os.X_OK) or path.is_dir():
        raise CLINotFoundError(f"There is no executable claude CLI at {path}")
    return str(path)


def credential() -> dict[str, str]:
    """The variable with the key that systemd holds for the service, which goes before one of its
    environment. Raises OSError if the key is there and cannot be read.
    """
    key = credentials.key_of_service(os.environ)
    return {"ANTHROPIC_API_KEY": key} if key else {}


def environment(spec: LaunchSpec, temporary: str) -> dict[str, str]:
    """Variables for the CLI and its tools, besides the worker's environment; raises OSError as
    `credential` does.
    """
    return {
        # Else current models have no list of tasks, and no client would ever show a plan.
        TASK_TOOLS: os.environ.get(TASK_TOOLS, "1"),
        **(spec.options.asked.env or {}),
        **(credential() if spec.options.own_credential else {}),
        "PYKOCLAW_CLAUDE": find_cli(spec.options.cli_path),
        "PYKOCLAW_PYTHON": sys.executable,
        "PYKOCLAW_CLAUDE_UMASK": spec.options.umask or "",
        WORKER: spec.cookie,
        "CLAUDE_CODE_TMPDIR": temporary,
        "CLAUDE_CODE_HARBOR_KITE": "0",  # sessions must not see each other
        "CLAUDE_CODE_RESUME_INTERRUPTED_TURN": "0",  # a turn is never run again by itself
        **profile.environment(spec),
        **(_WITHOUT if spec.options.restricted else {}),
    }


def options(
    spec: LaunchSpec,
    temporary: str,
    begin: dict[str, Any],
    servers: Servers,
    files: Files,
    *,
    can_use_tool: CanUseTool,
    on_stderr: Callable[[str], None],
) -> ClaudeAgentOptions:
    """The options; `begin` is `{"resume": id}` or `{"session_id": id}`."""
    # It repeats a message when it takes it up (`worker/steering.py`).
    flags: dict[str, str | None] = {"replay-user-messages": None}
    if spec.options.bypass:
        flags["allow-dangerously-skip-permissions"] = None
    if files.servers is not None:
        flags["mcp-config"] = str(files.servers)  # besides `mcp_servers`; Claude takes several
    system_prompt: str | SystemPromptPreset | SystemPromptFile = profile.system_prompt(spec)
    if files.system_prompt is not None:
        if profile.replaces_system_prompt(spec):
            system_prompt = SystemPromptFile(type="file", path=str(files.system_prompt))
        else:
            flags["append-system-prompt-file"] = str(files.system_prompt)
    asked = spec.options.asked
    return ClaudeAgentOptions(
        cwd=spec.options.cwd,
        add_dirs=[
            *([spec.options.cwd] if spec.options.restricted else []),
            *spec.options.additional_directories,
            *profile.directories(spec),
        ],
        model=spec.options.model,
        permission_mode=cast("PermissionMode", spec.options.permission_mode),
        setting_sources=cast("list[SettingSource]", sources(spec)),
        cli_path=WRAPPER,
        env=environment(spec, temporary),
        system_prompt=system_prompt,
        settings=json.dumps(settings(spec)),
        effort=cast("EffortLevel | None", spec.options.config.effort),
        tools=None if asked.tools is None else list(asked.tools),
        disallowed_tools=[*DISALLOWED, *(asked.disallowed_tools or ())],
        allowed_tools=[
            *profile.allowed_tools(spec, servers.own),
            *servers.unasked,
            *(asked.allowed_tools or ()),
        ],
        max_turns=asked.max_turns,
        extra_args=flags,
        include_partial_messages=True,
        forward_subagent_text=True,
        include_hook_events=True,
        enable_file_checkpointing=True,
        thinking={"type": "adaptive", "display": "summarized"},
        max_buffer_size=MAX_BUFFER,
        can_use_tool=can_use_tool,
        mcp_servers=servers.inside,
        stderr=on_stderr,
        **begin,
    )


def settings(spec: LaunchSpec) -> dict[str, Any]:
    """Claude settings of the worker; they go before those of files."""
    # Claude deletes transcripts after 30 days by default.
    kept: dict[str, Any] = {"cleanupPeriodDays": 36500}
    if gateway.is_between({**os.environ, **(spec.options.asked.env or {})}):
        # Plan mode then asks: most gateways do not pass on the check that it has instead.
        kept["useAutoModeDuringPlan"] = False
    if permissions := _permissions(spec.options):
        kept["permissions"] = permissions
    return {**kept, "fastMode": True} if spec.options.config.fast else kept


def _permissions(worker: WorkerOptions) -> dict[str, list[str]]:
    """Rules for calls. What is to be asked about goes before what is allowed, in Claude as well."""
    permissions: dict[str, list[str]] = {}
    if worker.restricted:
        permissions = {kind: list(these) for kind, these in worker.restrictions.items()}
    elif worker.rules:
        permissions["allow"] = rules.given(worker.rules)
    if ask := worker.asked.ask_tools:
        permissions["ask"] = [*permissions.get("ask", ()), *ask]
    return permissions


class Files(NamedTuple):
    """Private files for what is not to be on the command line, which `ps` shows and the system
    limits.
    """

    servers: Path | None
    system_prompt: Path | None


@contextlib.contextmanager
def private_files(spec: LaunchSpec, servers: dict[str, Any], temporary: str) -> Iterator[Files]:
    """Files with these MCP servers and the session's system prompt, while the CLI starts."""
    text = profile.asked_system_prompt(spec)
    with contextlib.ExitStack() as stack:
        configured = json.dumps({"mcpServers": servers}) if servers else None
        yield Files(
            stack.enter_context(private_file(Path(temporary) / "mcp.json", configured)),
            stack.enter_context(private_file(Path(temporary) / "system-prompt.txt", text)),
        )


@contextlib.contextmanager
def private_file(path: Path, content: str | None) -> Iterator[Path | None]:
    """A file that only the user can read, while the CLI starts; none without content."""
    if content is None:
        yield None
        return
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content.encode(errors="replace"))
        yield path
    finally:
        path.unlink(missing_ok=True)
