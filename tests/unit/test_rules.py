"""What "always" allows: said in words, without a mode in its shadow, and kept only if it holds no
secret.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import PermissionResultAllow, PermissionUpdate, ToolPermissionContext
from claude_agent_sdk.types import PermissionRuleValue
from msgspec.structs import replace

from pykoclaw_acp.channel.frames import Answer
from pykoclaw_acp.channel.options import WITHOUT
from pykoclaw_acp.model.events import ToolStarted
from pykoclaw_acp.model.session_options import SessionOptions
from pykoclaw_acp.protocol import permissions, projection, questions
from pykoclaw_acp.protocol.updates import ToolLocation
from pykoclaw_acp.sessions.permissions import words
from pykoclaw_acp.system.secrets import may_hold_secret
from pykoclaw_acp.translation.mcp_names import McpNames
from pykoclaw_acp.worker import options, rules
from pykoclaw_acp.worker.permissions import PermissionCallbacks
from pykoclaw_acp.worker.translate import Translator
from tests.waiting import eventually
from tests.workers import spec


def rule(tool: str, content: str | None = None) -> PermissionUpdate:
    values = [PermissionRuleValue(tool_name=tool, rule_content=content)]
    return PermissionUpdate(
        type="addRules", rules=values, behavior="allow", destination="localSettings"
    )


COMMAND = {"command": "npm test"}
ACCEPTED = (
    "edits and simple commands that make, move or delete files (turns on the mode Accept edits)"
)
BELOW = " (also in directories below)"
ACCEPT = PermissionUpdate(type="setMode", mode="acceptEdits", destination="session")
ELSEWHERE = PermissionUpdate(type="addDirectories", directories=["/x"], destination="session")
HERE = PermissionUpdate(type="addDirectories", directories=["/w"], destination="session")


@pytest.mark.parametrize(
    ("suggestions", "words"),
    [
        ([rule("Bash", "npm test")], f"`npm test`{BELOW}"),
        ([rule("Bash", "npm run *")], f"commands that begin with `npm run`{BELOW}"),
        ([rule("Bash", "npm run:*")], f"commands that begin with `npm run`{BELOW}"),
        ([rule("Bash", "a"), rule("Bash", "b")], f"`a` and `b`{BELOW}"),
        ([rule("WebFetch", "domain:example.org")], "fetching from example.org"),
        ([rule("Read", "//etc/**")], "reading `/etc/**`"),
        ([rule("Edit", "src/**")], "editing `src/**`"),
        ([rule("mcp__db__run")], "the tool `run` of db"),
        ([rule("WebSearch")], "every use of WebSearch"),
        ([rule("Skill", "init")], "Skill with `init`"),
        (
            [ACCEPT],
            ACCEPTED,
        ),
        (
            [ELSEWHERE, ACCEPT],
            "access to `/x` and " + ACCEPTED.replace("edits)", "edits, which stays on)"),
        ),
        ([rule("Bash", "make"), ACCEPT], f"`make`{BELOW}"),
        ([rule("Bash", "make"), HERE], f"`make`{BELOW}"),
    ],
)
def test_scope_of_always_is_said_in_words(suggestions: list[PermissionUpdate], words: str) -> None:
    updates = rules.for_session(suggestions, "/w")
    assert rules.describe(updates) == words
    assert {one.destination for one in updates} == {"session"}
    assert any(one.mode for one in updates) == ("Accept edits" in words)


def test_scope_has_server_as_user_named_it() -> None:
    names = McpNames()
    names.connected([{"name": "my srv"}, {"name": "my srv (1)"}])
    said = [
        rules.describe([rule(f"mcp__{one}")], names)
        for one in ("my_srv__run", "my_srv", "my_srv__1___run", "other__run")
    ]
    assert said == [
        "the tool `run` of my srv",
        "all tools of my srv",
        "the tool `run` of my srv (1)",
        "the tool `run` of other",
    ]


@pytest.mark.parametrize(
    "suggested",
    [
        rule("Bash", "python3 * --version"),
        rule("Bash", "*.sh:*"),
        rule("Bash", "./run.sh * --x *"),
        rule("Read", "//out/\\*/**"),
        rule("Read", "//out/d[1]/**"),
        rule("Edit", "src/**/x"),
        rule("WebFetch", "domain:*.org"),
    ],
    ids=str,
)
def test_calls_own_patterns_are_not_allowed_always(suggested: PermissionUpdate) -> None:
    updates = rules.for_session([rule("Bash", "make"), suggested], "/w")
    assert (updates, rules.describe(updates)) == ([], None)


def test_nothing_suggested_is_no_always() -> None:
    assert rules.describe(rules.for_session([], "/w")) is None


@pytest.mark.parametrize(
    ("suggestions", "kept"),
    [
        ([rule("Bash", "npm test"), rule("WebSearch")], ("Bash(npm test)", "WebSearch")),
        ([], ()),
        ([ACCEPT], ()),
        ([rule("Bash", "make"), ELSEWHERE], ()),
        ([rule("Bash", "echo ), Bash(ls")], ()),
        ([rule("Bash", "a\nb")], ()),
        ([rule("Bash", "x" * 301)], ()),
        ([rule("Bash", "make"), rule("Bash", "TOKEN=1 make")], ()),
    ],
)
def test_only_plain_rules_may_last(
    suggestions: list[PermissionUpdate], kept: tuple[str, ...]
) -> None:
    assert rules.lasting(rules.for_session(suggestions, "/w")) == kept


@pytest.mark.parametrize(
    "text",
    [
        "API_KEY=1 make",
        "curl -H 'Authorization: Bearer x' example.org",
        "mysql --password hunter2",
        "curl https://me:pw@example.org",
        "curl https://example.org?t=1",
        "login ghp_0123456789abcdefghijklmn",
        "export AWS_SECRET_ACCESS_KEY=x",
        "curl -u admin:hunter2 https://example.org",
        "sshpass -p hunter2 ssh host",
        "mysql -uroot -phunter2 shop",
        "docker login -u me -p hunter2",
        "redis-cli -a hunter2 keys",
        "PGPASS=hunter2 psql",
        "curl -H Bearer hunter2",
        "curl --user admin:hunter2 https://example.org",
        "curl --user=admin:hunter2 https://example.org",
        "curl --proxy-user admin:hunter2 https://example.org",
        "curl -sSu admin:hunter2 https://example.org",
        "curl -U admin:hunter2 https://example.org",
        "curl -uadmin:hunter2 https://example.org",
        "http -a admin:hunter2 https://example.org",
        "https -a admin:hunter2 example.org",
        "xh -a admin:hunter2 https://example.org",
        "xhs -va admin:hunter2 example.org",
        "wget --user admin --password x https://example.org",
    ],
)
def test_what_may_hold_a_secret_is_noticed(text: str) -> None:
    assert may_hold_secret(text)


@pytest.mark.parametrize(
    "text",
    [
        "npm test",
        "git commit -m *",
        "domain:example.org",
        "pytest -q tests/unit",
        "mkdir -p a/b",
        "docker run -p 80:80 web",
        "git push -u origin main",
        "./bypass.sh --compass=x",
        "sort -u a:b",
        "git push --set-upstream origin main",
        "curl -sS https://example.org",
        "curl --upload-file a https://example.org",
        "curl -sSLo out.tar.gz https://example.org/a.tar.gz",
        "http --all https://example.org",
        "ls -la /srv/http",
        "grep -ra needle src",
        "mysql -h localhost shop",
    ],
)
def test_ordinary_commands_hold_no_secret(text: str) -> None:
    assert not may_hold_secret(text)


async def asked(
    suggestions: list[PermissionUpdate],
    decision: Any,
    *,
    lasting: bool,
    agent: str | None = None,
    tool: str = "Bash",
    given: dict[str, Any] = COMMAND,
) -> Any:
    """The request that a worker makes, and what the CLI is told after this decision."""
    asks: list[Any] = []

    async def reported(*_: object) -> str:
        return "t"

    stream = Translator("/w")
    if agent is not None:
        stream.start_tool("parent", "Agent", {"subagent_type": agent, "prompt": "look"})
        stream.start_tool("c", tool, given, "parent")
    worker = PermissionCallbacks(1, asks.append, stream, reported, reported)
    worker.lasting = lasting
    context = ToolPermissionContext(suggestions=suggestions, tool_use_id="c")
    task = asyncio.ensure_future(worker.can_use_tool(tool, given, context))
    request = (await eventually(lambda: asks))[0]
    worker.resolve(Answer(epoch=1, ask_id=request.ask_id, decision=decision))
    return request, await task


async def test_request_of_a_subagent_says_so() -> None:
    request, _ = await asked([], "allow_once", lasting=False)
    call = permissions.permission("s", request).tool_call
    assert (call.title, call.name) == ("npm test", "Bash")
    assert call.meta == {"claudeCode": {"toolName": "Bash"}}
    request, _ = await asked([], "allow_once", lasting=False, agent="Ex\nplore")
    call = permissions.permission("s", request).tool_call
    assert call.title == "Ex ⏎ plore: npm test"
    assert call.meta == {
        "pykoclaw.dev/parentToolCallId": "parent",
        "claudeCode": {"toolName": "Bash", "parentToolUseId": "parent"},
    }


async def test_request_names_the_files_of_its_call() -> None:
    given = {"file_path": "a.txt", "content": "a"}
    request, _ = await asked([], "allow_once", lasting=False, tool="Write", given=given)
    call = permissions.permission("s", request).tool_call
    assert (call.name, call.locations) == ("Write", [ToolLocation(path="/w/a.txt")])


async def test_each_question_says_whose_it_is() -> None:
    given = {"questions": [{"question": "Which?", "options": [{"label": "Red"}]}]}
    request, _ = await asked(
        [], "reject_once", lasting=False, agent="Explore", tool="AskUserQuestion", given=given
    )
    call = questions.poll("s", request, 0, chat_first=False).tool_call
    assert call.name == "AskUserQuestion"
    assert call.meta == {
        "pykoclaw.dev/parentToolCallId": "parent",
        "claudeCode": {"toolName": "AskUserQuestion", "parentToolUseId": "parent"},
    }


def test_calls_say_their_tools_where_clients_look() -> None:
    call = projection.update(1, ToolStarted("c", "Bash", "ls", "execute"))
    assert (call.meta or {})["claudeCode"] == {"toolName": "Bash"}
    inner = projection.update(1, ToolStarted("c", "Bash", "ls", "execute", parent_id="agent"))
    assert (inner.meta or {})["claudeCode"] == {"toolName": "Bash", "parentToolUseId": "agent"}


async def test_options_name_duration_and_least_comes_first() -> None:
    request, told = await asked([rule("Bash", "npm test"), ACCEPT], "allow_always", lasting=True)
    options = [
        (one.option_id, one.kind, one.name) for one in permissions.permission("s", request).options
    ]
    assert options == [
        ("allow_once", "allow_once", "Allow once"),
        ("allow_always", "allow_always", f"Always allow `npm test`{BELOW} in this session"),
        (
            "allow_lasting",
            "allow_always",
            f"Always allow `npm test`{BELOW}, in later sessions in this directory too",
        ),
        ("reject_once", "reject_once", "Reject"),
    ]
    assert isinstance(told, PermissionResultAllow)
    assert told.updated_permissions is not None
    (update,) = told.updated_permissions
    assert (update.type, update.destination) == ("addRules", "session")


async def test_nothing_lasts_where_the_directory_is_not_trusted() -> None:
    request, _ = await asked([rule("Bash", "npm test")], "allow_once", lasting=False)
    assert request.rules == ()
    assert not request.kept


@pytest.mark.parametrize(
    ("suggested", "until"),
    [
        ([rule("Bash", "npm test")], "in this session"),
        ([ACCEPT], "in this session"),
        ([rule("Bash", "TOKEN=1 npm test")], "until Claude's process ends"),
        ([rule("Bash", "npm test"), ELSEWHERE], "until Claude's process ends"),
        ([ELSEWHERE, ACCEPT], "until Claude's process ends"),
    ],
    ids=str,
)
async def test_label_says_until_when_always_holds(
    suggested: list[PermissionUpdate], until: str
) -> None:
    request, _ = await asked(suggested, "allow_once", lasting=True)
    always = permissions.choices(request)["allow_always"]
    assert always.endswith(until)
    told = words.effect(request, "allow_always")
    assert told is not None
    assert told.startswith("Allowed until Claude's") == ("process" in until)


@pytest.mark.parametrize("letter", ["x", "é", "😀", '"'])
def test_long_sessions_rules_fit_into_command_line(letter: str) -> None:
    """An argument that is longer than 128 KiB keeps the CLI from starting."""
    kept = [f"Bash({letter * 100} {number})" for number in range(2000)]
    given = json.loads(settings(kept))["permissions"]["allow"]
    assert 50 < len(given) < 2000
    assert given == kept[: len(given)]
    assert len(settings(kept).encode()) < 128 * 1024 - 1000
    assert json.loads(settings(kept[:3]))["permissions"]["allow"] == kept[:3]


def test_what_client_wants_asked_stays_among_rules() -> None:
    asked = SessionOptions(ask_tools=("Bash(git push:*)",))
    lasting = json.loads(settings(["Bash(ls)"], asked=asked))["permissions"]
    assert lasting == {"allow": ["Bash(ls)"], "ask": ["Bash(git push:*)"]}
    found = {"deny": ("Read",), "ask": ("Write",)}
    untrusted = json.loads(settings([], asked=asked, workspace=WITHOUT, restrictions=found))
    assert untrusted["permissions"] == {"deny": ["Read"], "ask": ["Write", "Bash(git push:*)"]}


def settings(kept: list[str], **more: Any) -> str:
    launch = spec(Path("/i"))
    given = replace(launch, options=replace(launch.options, rules=tuple(kept), **more))
    return json.dumps(options.settings(given))
