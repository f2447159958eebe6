"""A hostile repository on the real CLI: nothing of it acts before the user says so, and then it
does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.commands import Result
from tests.e2e.harness import RpcError, Stack, script
from tests.e2e.harness.client import selected
from tests.e2e.harness.stack import PROGRAM
from tests.e2e.hostile import (
    ACTS,
    ACTS_LATER,
    REFUSE,
    TRUST,
    USE,
    WITHOUT,
    Recorder,
    Repository,
    about_trust,
    asked,
    choose,
    server,
)
from tests.waiting import eventually

WORK = script("bash echo hi", "text done.")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "clone", tmp_path / "marks")


async def run(stack: Stack, *arguments: str, cwd: Path | None = None) -> Result:
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        *arguments,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        env=stack.environment,
        cwd=cwd or stack.root,
    )
    out, error = await asyncio.wait_for(process.communicate(), 240)
    assert process.returncode is not None
    return Result(process.returncode, out.decode(), error.decode())


async def test_nothing_acts_without_trust_but_words_count(stack: Stack) -> None:
    """Also where Claude's own settings trust the directory, and with the next daemon."""
    with server() as target, contextlib.closing(Recorder(stack.model.url)) as recorder:
        repository = Repository(stack.root / "clone", stack.root / "marks", target.url)
        repository.write("CLAUDE.md", "ROOTWORDS\n@docs/more.md\n")
        repository.write("docs/more.md", "INCLUDEDWORDS\n")
        repository.write(".claude/rules/rule.md", "RULEWORDS\n")
        config = stack.home / ".claude/.claude.json"
        config.parent.mkdir(exist_ok=True)
        config.write_text(
            json.dumps({"projects": {str(repository.path): {"hasTrustDialogAccepted": True}}})
        )
        client = await stack.front(ANTHROPIC_BASE_URL=recorder.url)
        choose(client, WITHOUT)
        session = await client.new(repository.path)
        assert (await client.prompt(session, script("bash echo $HOSTILE=", "report")))[
            "stopReason"
        ] == "end_turn"
        for words in USE:
            assert (await client.prompt(session, words))["stopReason"] == "end_turn"
        question = asked(client)[0]
        assert [(one["optionId"], one["kind"]) for one in question["options"]] == [
            (WITHOUT, "allow_once"), (TRUST, "allow_always"), (REFUSE, "reject_once"),
        ]  # fmt: skip
        said = question["toolCall"]["content"][0]["content"]["text"]
        for found in ("hook at SessionStart", "apiKeyHelper", target.url, "MCP server evil", "settings.local.json",
                      "skills/evil/SKILL.md", "is a plugin", "agents/evil.md", "commands/wicked.md"):  # fmt: skip
            assert found in said
        assert len(asked(client)) == 1  # the worker lives on
        worker = stack.worker(session)
        await stack.end_daemon()
        await client.prompt(session, WORK)
        assert len(asked(client)) == 1
        assert stack.worker(session).pid == worker.pid
        assert (await run(stack, "workers", "stop")).out.startswith("Ended 1 worker")
        await stack.no_worker()
        await client.close()
        await stack.end_daemon()
    assert repository.ran == set()
    assert target.reached == []
    heard = b"".join(recorder.bodies).decode()
    assert [word for word in ("ROOTWORDS", "INCLUDEDWORDS", "RULEWORDS") if word in heard] == [
        "ROOTWORDS", "INCLUDEDWORDS", "RULEWORDS",
    ]  # fmt: skip
    assert "SKILLWORDS" not in heard
    log = client.text(session)
    assert "without the active content" in log
    assert f"pykoclaw-acp trust add {repository.path}" in log
    tool_asked = [one for one in client.questions if not about_trust(one["params"])]
    assert tool_asked, "the repository's own permissions.allow must not count"


async def test_moved_project_keeps_memory_and_asks_anew(stack: Stack) -> None:
    old, new = stack.root / "old", stack.root / "new"
    (old / ".claude").mkdir(parents=True)
    ran = stack.root / "ran"
    hooks = {"SessionStart": [{"hooks": [{"type": "command", "command": f"touch {ran}"}]}]}
    (old / ".claude/settings.json").write_text(json.dumps({"hooks": hooks}))
    client = await stack.front()
    choose(client, TRUST)
    session = await client.new(old)
    await client.prompt(session, script("text Remembered."))
    assert ran.exists()
    old.rename(new)
    ran.unlink()
    choose(client, WITHOUT)
    await client.load(session, new)
    await client.prompt(session, script("bash pwd > here", "text done."))
    assert [str(new) in str(one["toolCall"]["title"]) for one in asked(client)] == [False, True]
    assert not ran.exists()
    assert (new / "here").read_text().strip() == str(new)
    assert "Remembered." in json.dumps(stack.asked()[-1]["messages"])
    assert "Claude does not remember" not in client.text(session)


@pytest.mark.long
async def test_what_the_directory_forbids_counts_without_trust(stack: Stack) -> None:
    work = stack.root / "[cl]one"
    (work / ".claude").mkdir(parents=True)
    for name in ("secret", "other", "told"):
        (work / f"{name}.txt").write_text(f"WORDS of {name}")
    permissions = {"allow": ["Bash"], "deny": ["Read(./secret.txt)", "Read(/other.txt)"]}
    local = {"permissions": {"ask": ["Read(told.txt)"]}}
    hooks = {"SessionStart": [{"hooks": [{"type": "command", "command": "touch ran"}]}]}
    for name, settings in (
        ("settings.json", {"permissions": permissions, "hooks": hooks}),
        ("settings.local.json", local),
    ):
        (work / ".claude" / name).write_text(json.dumps(settings))
    client = await stack.front()
    choose(client, WITHOUT)
    session = await client.new(work)
    await client.prompt(
        session, script("read secret.txt", "read other.txt", "read told.txt", "report")
    )
    (question,) = [one["params"] for one in client.questions if not about_trust(one["params"])]
    assert "told.txt" in question["toolCall"]["title"]
    heard = json.dumps(stack.asked())
    assert "WORDS of told" in heard
    assert "WORDS of secret" not in heard
    assert "WORDS of other" not in heard
    assert not (work / "ran").exists()


def _cloned(work: Path, command: str) -> None:
    """A repository that has `git status` run a command."""
    subprocess.run(["git", "init", "--quiet", work], check=True)
    subprocess.run(["git", "-C", work, "config", "core.fsmonitor", command], check=True)


def _decoy(work: Path) -> None:
    (work / "HEAD").touch()
    for folder in ("objects", "refs"):
        (work / folder).mkdir()


def _nul(work: Path) -> None:
    config = work / ".git/config"
    config.write_text(config.read_text().replace("\tfsmonitor =", '[core "fsmonitor\0"]\n\tx ='))


@pytest.mark.parametrize(
    ("hide", "sources"),
    [
        (None, "user,project,local"),
        pytest.param(None, "user", marks=pytest.mark.long),
        pytest.param(_decoy, "none", marks=pytest.mark.long),
        pytest.param(_nul, "user,project,local", marks=pytest.mark.long),
    ],
)
async def test_git_is_asked_about_without_trust(
    stack: Stack, hide: Callable[[Path], None] | None, sources: str
) -> None:
    work, ran = stack.root / "unpacked", stack.root / "ran"
    _cloned(work, f"touch {ran}; false")
    if hide is not None:
        hide(work)
    client = await stack.front(PYKOCLAW_SETTING_SOURCES=sources)
    ran_before: list[bool] = []

    def permit(params: dict[str, Any]) -> dict[str, Any]:
        ran_before.append(ran.exists())
        return selected(WITHOUT if about_trust(params) else "allow_once")

    client.permit = permit
    session = await client.new(work)
    await client.prompt(session, script("bash git status", "report"))
    trust, question = [one["params"] for one in client.questions]
    assert about_trust(trust)
    assert "git status" in question["toolCall"]["title"]
    assert ran_before == [False, False]
    assert ran.exists(), "git does not run it, so that nothing was shown"


@pytest.mark.long
async def test_trusted_content_acts_and_its_change_is_asked(
    shared: Stack, repository: Repository
) -> None:
    client = await shared.front()
    choose(client, TRUST)
    session = await client.new(repository.path)
    await client.prompt(session, WORK)
    assert repository.ran >= ACTS | {"script"}
    assert len(asked(client)) == 1
    await client.prompt(
        await client.new(repository.path), WORK
    )  # remembered, also for other sessions
    assert len(asked(client)) == 1

    choose(client, WITHOUT)
    repository.write(
        "setup.sh", f"touch {repository.marks}/changed\n"
    )  # a script that a hook names
    await client.prompt(session, WORK)
    assert len(asked(client)) == 2
    repository.settings["hooks"]["Stop"] = [{"hooks": [repository.command("changed")]}]
    repository.save()
    await client.prompt(session, WORK)
    assert len(asked(client)) == 3
    assert "changed" not in repository.ran
    choose(client, TRUST)
    repository.settings["env"]["MORE"] = "1"
    repository.save()
    await client.prompt(session, WORK)
    assert "changed" in repository.ran


@pytest.mark.parametrize(
    ("changed", "prompts"),
    [
        (True, True),
        pytest.param(True, False, marks=pytest.mark.long),
        pytest.param(False, False, marks=pytest.mark.long),
    ],
)
async def test_changed_script_does_not_run_as_claude_ends(
    stack: Stack, changed: bool, prompts: bool
) -> None:
    """Whether the worker is replaced for the next prompt, or stopped."""
    work, before, after = (stack.root / name for name in ("work", "before", "after"))
    (work / ".claude").mkdir(parents=True)
    hook = {"type": "command", "command": 'sh "$CLAUDE_PROJECT_DIR"/end.sh'}
    settings = {"hooks": {"SessionEnd": [{"hooks": [hook]}]}}
    (work / ".claude/settings.json").write_text(json.dumps(settings))
    (work / "end.sh").write_text(f"touch {before}\n")
    client = await stack.front()
    choose(client, TRUST)
    session = await client.new(work)
    await client.prompt(session, script("text Remembered."))
    if changed:
        (work / "end.sh").write_text(f"touch {after}\n")
    if prompts:
        choose(client, WITHOUT)
        await client.prompt(session, script("text done."))
        assert len(asked(client)) == 2
        assert "Remembered." in json.dumps(stack.asked()[-1]["messages"])
    assert (await run(stack, "workers", "stop")).status == 0
    await stack.no_worker()
    assert (before.exists(), after.exists()) == (not changed, False)


async def test_log_of_hook_raises_no_question(shared: Stack) -> None:
    """It is in the directory, and other after each prompt."""
    work = shared.root / "logged"
    (work / ".claude").mkdir(parents=True)
    hook = {"type": "command", "command": "date 2>&1 >> hook.log"}
    settings = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [hook]}]}}
    (work / ".claude/settings.json").write_text(json.dumps(settings))
    client = await shared.front()
    choose(client, TRUST)
    session = await client.new(work)
    for prompts in (1, 2, 3):
        await client.prompt(session, WORK)
        assert len((work / "hook.log").read_text().splitlines()) == prompts
    assert len(asked(client)) == 1


async def test_who_refuses_sends_nothing(shared: Stack, repository: Repository) -> None:
    client = await shared.front()
    choose(client, REFUSE)
    session = await client.new(repository.path)
    with pytest.raises(RpcError) as refused:
        await client.prompt(session, WORK)
    assert refused.value.kind == "workspace_refused"
    assert repository.ran == set()
    assert shared.asked() == []


@pytest.mark.long
async def test_the_question_outlives_the_daemon(stack: Stack, repository: Repository) -> None:
    client = await stack.front()
    client.permit = lambda params: None if about_trust(params) else selected("allow_once")
    session = await client.new(repository.path)
    prompt = client.prompting(session, WORK)
    await client.until(lambda: asked(client))
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        await stack.end_daemon(number)
        await eventually(lambda: (pid := stack.daemon_pid()) is not None and stack.serves(pid))
    found: Any = await eventually(lambda: _listed(stack))
    (waiting,) = found
    assert waiting["title"].startswith(f"Trust {repository.path}?")
    assert repository.ran == set()
    told = f"an answer: {waiting['title']} (`pykoclaw-acp approve {waiting['id'][:12]}`)"
    assert " asking " in (await run(stack, "sessions", "list")).out
    assert told in (await run(stack, "sessions", "show", session)).out
    assert (await run(stack, "sessions", "tail", session)).error == f"Waits for {told}\n"
    assert (await run(stack, "approve", waiting["id"], "--always")).status == 0
    assert (await client.answer(prompt))["stopReason"] == "end_turn"
    assert repository.ran >= ACTS
    assert (
        len({one["id"] for one in client.questions if about_trust(one["params"])}) == 1
    )  # the same one, each time
    calls = [one["toolCallId"] for one in client.announced]
    assert len(calls) == len(set(calls))


@pytest.mark.long
async def test_operators_answer_waits_for_client_with_key(
    stack: Stack, repository: Repository
) -> None:
    client = await stack.front()
    client.permit = lambda params: None if about_trust(params) else selected("allow_once")
    prompt = client.prompting(await client.new(repository.path), WORK)
    await client.until(lambda: asked(client))
    os.kill(client.process.pid, signal.SIGSTOP)
    try:
        await stack.end_daemon(signal.SIGKILL)
        found: Any = await eventually(lambda: _listed(stack))
        assert (await run(stack, "approve", found[0]["id"], "--always")).status == 0
    finally:
        os.kill(client.process.pid, signal.SIGCONT)
    assert (await client.answer(prompt))["stopReason"] == "end_turn"


async def _listed(stack: Stack) -> Any:
    return (await run(stack, "approve", "--json")).json


@pytest.mark.long
async def test_the_commands_list_add_and_remove(stack: Stack, repository: Repository) -> None:
    path = str(repository.path)
    client = await stack.front()
    choose(client, WITHOUT)
    session = await client.new(repository.path)
    assert (await run(stack, "trust", "list")).out == "No directory is trusted.\n"
    shown = await run(stack, "trust", "show", path)
    assert "hook at SessionStart" in shown.out
    assert "This content is not trusted." in shown.out
    await client.prompt(session, WORK)
    assert repository.ran == set()
    added = await run(stack, "trust", "add", path)
    assert "MCP server evil" in added.out
    assert "PYKOCLAW_CLI_PATH" in added.out
    await client.prompt(session, WORK)  # the worker that ran without is replaced
    assert repository.ran >= ACTS
    assert len(asked(client)) == 1
    (row,) = (await run(stack, "trust", "list", "--json")).json
    assert (row["path"], row["tree"], row["dotenv"], row["by"]) == (path, False, True, "cli")
    assert (await run(stack, "trust", "remove", path)).status == 0
    await client.prompt(session, WORK)
    assert len(asked(client)) == 2
    # The choice to run without it is kept as well, and forgotten by the same command.
    assert (await run(stack, "trust", "remove", path)).status == 0
    assert (await run(stack, "trust", "remove", path)).status == 1
    assert (await run(stack, "trust", "add", "--tree", str(stack.root))).status == 0
    await client.prompt(session, WORK)
    assert len(asked(client)) == 2


@pytest.mark.long
async def test_off_trusts_every_directory(stack: Stack, repository: Repository) -> None:
    client = await stack.front(PYKOCLAW_WORKSPACE_TRUST="off")
    choose(client, WITHOUT)
    await client.prompt(await client.new(repository.path), WORK)
    assert asked(client) == []
    assert repository.ran >= ACTS


@pytest.mark.long
async def test_trusted_settings_act_when_occasion_comes(
    stack: Stack, repository: Repository
) -> None:
    """What the marks of the tests above, which are missing without trust, are worth."""
    client = await stack.front()
    choose(client, TRUST)
    session = await client.new(repository.path)
    for words in USE:
        await client.prompt(session, words)
    assert (await run(stack, "workers", "stop")).status == 0
    await eventually(lambda: repository.ran >= ACTS_LATER)


@pytest.mark.long
async def test_no_command_lets_untrusted_directory_act(
    stack: Stack, repository: Repository
) -> None:
    doctor = await run(stack, "doctor", cwd=repository.path)
    assert "./.env is not read" in doctor.out
    shown = await run(stack, "config", cwd=repository.path)
    assert "evil.sh" not in shown.out
    for signs in ("login", "logout"):
        refused = await run(stack, "mcp", signs, "evil", cwd=repository.path)
        assert "not trusted" in refused.error
    assert (await run(stack, "logout", cwd=repository.path)).status == 0
    assert repository.ran == set()
    repository.write(".env", f"PYKOCLAW_DATA={repository.path}/data\n")
    for command in (("serve", "--stdio"), ("serve",)):
        refused = await run(stack, *command, cwd=repository.path)
        assert refused.status == 78
        assert "PYKOCLAW_DATA is set in" in refused.error
    assert not (repository.path / "data").exists()


@pytest.mark.long
async def test_directories_below_and_additional_ones_are_asked_about(
    shared: Stack, repository: Repository
) -> None:
    below = repository.path / "a" / "b"
    below.mkdir(parents=True)
    client = await shared.front()
    choose(client, WITHOUT)
    await client.prompt(await client.new(below), WORK)
    assert "settings.local.json" in asked(client)[0]["toolCall"]["content"][0]["content"]["text"]
    plain = shared.root / "plain"
    plain.mkdir()
    await client.prompt(await client.new(plain, additionalDirectories=[str(repository.path)]), WORK)
    assert "skills/evil" in asked(client)[1]["toolCall"]["content"][0]["content"]["text"]
    assert repository.ran == set()


@pytest.mark.parametrize(
    ("choice", "acts"), [(WITHOUT, False), pytest.param(TRUST, True, marks=pytest.mark.long)]
)
async def test_skill_in_subdirectory_acts_only_with_trust(
    stack: Stack, choice: str, acts: bool
) -> None:
    clone, mark = stack.root / "clone", stack.root / "mark"
    skill = clone / "sub/.claude/skills/nest/SKILL.md"
    skill.parent.mkdir(parents=True)
    (clone / "sub/a.txt").write_text("words\n")
    hook = f"hooks:\n  PreToolUse:\n    - hooks:\n        - type: command\n          command: touch {mark}\n"
    skill.write_text(f"---\nname: nest\ndescription: d\n{hook}---\n{WORK}\n")
    client = await stack.front()
    choose(client, choice)
    session = await client.new(clone)
    await client.prompt(
        session,
        script("read sub/a.txt", 'tool Skill {"skill": "nest"}', "bash echo hi", "text done."),
    )
    assert (
        "sub/.claude/skills/nest/SKILL.md"
        in asked(client)[0]["toolCall"]["content"][0]["content"]["text"]
    )
    await client.close()
    await stack.end_daemon()
    assert mark.exists() is acts
