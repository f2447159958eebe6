"""Titles of tool calls, as a person would write them: what is done to what, in one short line."""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from pykoclaw_acp.model.choices import OF_SERVER
from pykoclaw_acp.model.events import COMMANDS
from pykoclaw_acp.translation import deciding
from pykoclaw_acp.translation.mcp_names import McpName, McpNames
from pykoclaw_acp.translation.texts import MAX_ASKED, one_line

MAX_DESCRIPTION: Final = 60  # characters of Claude's own words in a title, before the command

Arguments = dict[str, Any]

_DETAILS: Final = (
    *("file_path", "notebook_path", "path", "pattern", "url", "query"),
    *("subject", "skill", "command", "description", "server"),
)
_AGENT_ID: Final = re.compile(r"a(?:.+-)?[0-9a-f]{16}")  # the CLI's, of subagents
_BETWEEN: Final = re.compile(r"[_\-\s]+")
_NEXT_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def title(name: str, arguments: Arguments, cwd: str, human: McpName | None = None) -> str:
    """Title of a tool call; final from the start, since some clients never update it.

    `human`: names for people of an MCP tool and its server; the tool's own is beside them.
    """
    if name.startswith(OF_SERVER):
        return one_line(_mcp(name, arguments, human))
    if (decided := deciding.title(name, arguments)) is not None:
        return one_line(decided)
    words = _TITLES[name](arguments, cwd) if name in _TITLES else None
    return one_line(words or _other(name, arguments))


def asked(name: str, arguments: Arguments, cwd: str) -> str:
    """Title of a permission request: the command itself and the whole address, as descriptions are
    claims of the model.
    """
    if name in COMMANDS and (command := text(arguments, "command")):
        return one_line(command, MAX_ASKED)
    if name == "WebFetch" and (url := text(arguments, "url")):
        return one_line(f"Fetch {url}", MAX_ASKED)
    return title(name, arguments, cwd)


def text(arguments: Arguments, key: str) -> str | None:
    """An argument that is a text with content; None otherwise."""
    value = arguments.get(key)
    return value if isinstance(value, str) and value.strip() else None


def path_of(arguments: Arguments, cwd: str) -> str | None:
    """The file or directory that a tool works on, as an absolute path."""
    for key in ("file_path", "notebook_path", "path"):
        if value := text(arguments, key):
            return os.path.normpath(os.path.join(cwd, value))  # ACP wants absolute paths
    return None


# --- each tool's


def _bash(arguments: Arguments, _cwd: str) -> str | None:
    command, said = text(arguments, "command"), text(arguments, "description")
    if command is None or said is None or said.strip() == command.strip():
        return command
    said = one_line(said, 10 * MAX_DESCRIPTION)
    if len(said) > MAX_DESCRIPTION:
        said = f"{said[: MAX_DESCRIPTION - 1]}…"
    return f"{said}: {command}"


def _read(arguments: Arguments, cwd: str) -> str | None:
    if (path := path_of(arguments, cwd)) is None:
        return None
    shown = f"Read {_relative(path, cwd)}"
    if pages := text(arguments, "pages"):
        return f"{shown} (pages {pages})"
    first, count = _number(arguments, "offset"), _number(arguments, "limit")
    if first and not count:
        return f"{shown} (from line {first})"
    if count:
        first = first or 1
        return f"{shown} ({first}–{first + count - 1})" if count > 1 else f"{shown} ({first})"
    return shown


def _on_file(verb: str) -> Callable[[Arguments, str], str | None]:
    def words(arguments: Arguments, cwd: str) -> str | None:
        path = path_of(arguments, cwd)
        return None if path is None else f"{verb} {_relative(path, cwd)}"

    return words


def _edit(arguments: Arguments, cwd: str) -> str | None:
    words = _on_file("Edit")(arguments, cwd)
    everywhere = words is not None and arguments.get("replace_all") is True
    return f"{words} (each match)" if everywhere else words


def _multi_edit(arguments: Arguments, cwd: str) -> str | None:
    words, edits = _on_file("Edit")(arguments, cwd), arguments.get("edits")
    several = words is not None and isinstance(edits, list) and len(edits) > 1
    return f"{words} ({len(arguments['edits'])} changes)" if several else words


def _notebook(arguments: Arguments, cwd: str) -> str | None:
    path, cell = path_of(arguments, cwd), text(arguments, "cell_id")
    if path is None:
        return None
    shown = _relative(path, cwd)
    match arguments.get("edit_mode"):
        case "insert":
            return f"Add a cell to {shown}"
        case "delete":
            return f"Delete cell {cell} of {shown}" if cell else f"Delete a cell of {shown}"
    return f"Edit {shown} (cell {cell})" if cell else f"Edit {shown}"


def _in_directory(verb: str) -> Callable[[Arguments, str], str | None]:
    def words(arguments: Arguments, cwd: str) -> str | None:
        pattern, path = text(arguments, "pattern"), path_of(arguments, cwd)
        if pattern is None:
            return None
        place = "" if path is None or path == cwd else f" in {_relative(path, cwd)}"
        files = text(arguments, "glob") or text(arguments, "type")
        return f"{verb} {pattern}{place} ({files})" if files else f"{verb} {pattern}{place}"

    return words


def _fetch(arguments: Arguments, _cwd: str) -> str | None:
    """Host and path, which say where it goes; a user's name before the host could mislead."""
    if (url := text(arguments, "url")) is None:
        return None
    try:
        found = urlsplit(url.strip())
        host = found.netloc.rpartition("@")[2]
    except ValueError:
        return f"Fetch {url}"
    if not host:
        return f"Fetch {url}"
    return f"Fetch {host}{found.path.rstrip('/')}{'?…' if found.query else ''}"


def _tool_search(arguments: Arguments, _cwd: str) -> str | None:
    if (query := text(arguments, "query")) is None:
        return None
    if query.startswith("select:"):
        names = ", ".join(query.removeprefix("select:").split(","))
        return f"Load tools: {names}"
    return f"Search for tools: {query}"


def _agent(arguments: Arguments, _cwd: str) -> str | None:
    said, kind = text(arguments, "description"), text(arguments, "subagent_type")
    if said is None:
        return None
    return f"Agent: {said} ({kind})" if kind else f"Agent: {said}"


def _message(arguments: Arguments, _cwd: str) -> str:
    """To the name that Claude has given a subagent; an id says nothing."""
    to, said = text(arguments, "to"), text(arguments, "summary")
    words = f"Message to {'the agent' if to is None or _AGENT_ID.fullmatch(to) else to}"
    return f"{words}: {said}" if said else words


def _ask(arguments: Arguments, _cwd: str) -> str | None:
    questions = arguments.get("questions")
    first = questions[0] if isinstance(questions, list) and questions else None
    question = text(first, "question") if isinstance(first, dict) else None
    return f"Ask: {question}" if question else "Ask you"


def _task_update(arguments: Arguments, _cwd: str) -> str | None:
    task = text(arguments, "taskId")
    status = (text(arguments, "status") or "").replace("_", " ")
    return task and (f"Task {task}: {status}" if status else f"Change task {task}")


def _of_server(words: str) -> Callable[[Arguments, str], str]:
    return lambda arguments, _cwd: f"{words} of {text(arguments, 'server') or 'MCP servers'}"


def _resource(words: str) -> Callable[[Arguments, str], str | None]:
    def of(arguments: Arguments, _cwd: str) -> str | None:
        server, uri = text(arguments, "server"), text(arguments, "uri")
        return words.format(uri, server) if server and uri else None

    return of


def _enter_worktree(arguments: Arguments, cwd: str) -> str:
    path = path_of(arguments, cwd)
    name = text(arguments, "name") if path is None else _relative(path, cwd)
    return f"Work in the worktree {name}" if name else "Work in a new worktree"


def _exit_worktree(arguments: Arguments, _cwd: str) -> str:
    removes = arguments.get("action") == "remove"
    return "Remove the worktree" if removes else "Leave the worktree"


def _report(arguments: Arguments, _cwd: str) -> str:
    found = arguments.get("findings")
    count = len(found) if isinstance(found, list) else 0
    if not count:
        return "Report that nothing was found"
    return f"Report {count} finding{'' if count == 1 else 's'}"


def _workflow(arguments: Arguments, _cwd: str) -> str:
    path = text(arguments, "scriptPath")
    name = os.path.basename(path) if path else text(arguments, "name")
    return f"Run workflow {name}" if name else "Run a workflow"


def _wakeup(arguments: Arguments, _cwd: str) -> str | None:
    if arguments.get("stop") is True:
        return "End the loop"
    seconds = _number(arguments, "delaySeconds")
    return None if seconds is None else f"Go on in {seconds} s"


def _with(words: str, *keys: str) -> Callable[[Arguments, str], str | None]:
    def of(arguments: Arguments, _cwd: str) -> str | None:
        found = next((value for key in keys if (value := text(arguments, key))), None)
        return found and words.format(found)

    return of


def _always(words: str) -> Callable[[Arguments, str], str | None]:
    return lambda _arguments, _cwd: words


_TITLES: Final[dict[str, Callable[[Arguments, str], str | None]]] = {
    "Bash": _bash,
    "Monitor": _bash,
    "Read": _read,
    "NotebookRead": _read,
    "Write": _on_file("Write"),
    "Edit": _edit,
    "MultiEdit": _multi_edit,
    "NotebookEdit": _notebook,
    "LS": _on_file("List"),
    "Glob": _in_directory("Find"),
    "Grep": _in_directory("Search for"),
    "ToolSearch": _tool_search,
    "WebFetch": _fetch,
    "WebSearch": _with("Search the web for {}", "query"),
    "Agent": _agent,
    "Task": _agent,
    "SendMessage": _message,
    "Skill": _with("Use skill {}", "skill", "command"),
    "TaskStop": _with("Stop task {}", "task_id", "shell_id"),
    "KillShell": _with("Stop task {}", "shell_id", "task_id"),
    "TaskOutput": _with("Look at the output of task {}", "task_id"),
    "BashOutput": _with("Look at the output of task {}", "bash_id"),
    "TodoWrite": _always("Update the tasks"),
    "TaskCreate": _with("Add task: {}", "subject"),
    "TaskUpdate": _task_update,
    "TaskList": _always("List the tasks"),
    "TaskGet": _with("Look at task {}", "taskId"),
    "EnterPlanMode": _always("Begin to plan"),
    "ExitPlanMode": _always("Present the plan"),
    "AskUserQuestion": _ask,
    "ListMcpResourcesTool": _of_server("List the resources"),
    "ReadMcpResourceTool": _resource("Read {} from {}"),
    "ReadMcpResourceDirTool": _resource("List {} of {}"),
    "RefreshMcpTools": _of_server("Look for new tools"),
    "EnterWorktree": _enter_worktree,
    "ExitWorktree": _exit_worktree,
    "ReportFindings": _report,
    "Workflow": _workflow,
    "CronCreate": _with("Schedule a prompt ({})", "cron"),
    "CronDelete": _with("Delete schedule {}", "id"),
    "CronList": _always("List the schedules"),
    "ScheduleWakeup": _wakeup,
}


def _mcp(name: str, arguments: Arguments, human: McpName | None) -> str:
    server, tool, of_tool = McpNames().split(name) if human is None else human
    words, details = _sentence(tool), []
    if tool.startswith("mitto_"):
        words = tool  # Mitto finds its own calls by these names in titles
    elif of_tool is not None and of_tool.casefold() != words.casefold():
        words, details = of_tool, [tool]  # rules are about this name
    label = f"{server}: {words}" if tool else server
    details += [value for key in _DETAILS if (value := text(arguments, key))][:1]
    return f"{label} ({', '.join(details)})" if details else label


def _sentence(name: str) -> str:
    """`list_files` as "List files"."""
    words = _BETWEEN.sub(" ", name).strip()
    return words[:1].upper() + words[1:]


def _other(name: str, arguments: Arguments) -> str:
    detail = next((value for key in _DETAILS if (value := text(arguments, key))), None)
    words = _of_tool(name)
    return f"{words}: {detail}" if detail else words


def _of_tool(name: str) -> str:
    """The name of a tool as words: `ReadNotifications` as "Read notifications"."""
    first, *others = _sentence(_NEXT_WORD.sub("_", name.removesuffix("Tool"))).split(" ")
    return " ".join([first, *(one if one.isupper() else one.lower() for one in others)])


def _number(arguments: Arguments, key: str) -> int | None:
    value = arguments.get(key)
    return value if isinstance(value, int) and value > 0 else None


def _relative(path: str, cwd: str) -> str:
    relative = os.path.relpath(path, cwd)
    return path if relative.startswith("..") else relative
