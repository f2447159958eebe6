"""docs/protocol.md, compared with the program."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

from claude_agent_sdk.types import AssistantMessageError

from pykoclaw_acp import errors
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.link import framing, lines, meta_keys
from pykoclaw_acp.link.greeting import greeting
from pykoclaw_acp.model import choices, events, folding
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.session_options import ENVIRONMENT
from pykoclaw_acp.protocol import (
    attachments,
    jsonrpc,
    long_lines,
    projection,
    prompt,
    replay,
    session_meta,
    tool_results,
)
from pykoclaw_acp.protocol import limits as ranges
from pykoclaw_acp.protocol.control.following import EVENT, QUESTION, SETTLED, TAKEN, WAITS
from pykoclaw_acp.server import (
    admission,
    forks,
    given_servers,
    lifecycle,
    line_room,
    listing,
    permission_requests,
    reading,
    sockets,
    steering,
    whole_prompts,
)
from pykoclaw_acp.server.calls import MAX_CALLS, MOST_OPEN
from pykoclaw_acp.server.client_requests import CANCEL
from pykoclaw_acp.server.methods import METHODS
from pykoclaw_acp.sessions import new_session, opening
from pykoclaw_acp.sessions.turns import deduplication, queue
from pykoclaw_acp.store import inspection  # noqa: F401  its exceptions are counted
from pykoclaw_acp.translation import results, texts
from pykoclaw_acp.worker import options, whole
from tests.unit.documents import codes, program_texts, section, table, text


def test_the_methods_are_those_of_the_dispatch_table() -> None:
    rows = table("docs/protocol.md", "method")
    supported = {name for row in rows if row[1] == "yes" for name in codes(row[0])}
    assert supported == {*METHODS, CANCEL}
    assert {row[1] for row in rows} <= {"yes", "no"}


def acp_package() -> Path:
    """The directory of the official SDK, whose import takes seconds."""
    package = find_spec("acp")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent


def acp_schema() -> str:
    return (acp_package() / "schema.py").read_text()


@cache
def acp_methods() -> Any:
    return SimpleNamespace(**runpy.run_path(str(acp_package() / "meta.py")))


def test_every_method_of_the_protocol_is_listed() -> None:
    stable = {name for row in table("docs/protocol.md", "method") for name in codes(row[0])}
    unstable = set(codes(text("docs/protocol.md").split("unstable in ACP")[1].split("\n\n")[0]))
    experimental = {
        name
        for name in acp_methods().AGENT_METHODS.values()
        if name.startswith(("nes/", "document/", "mcp/"))
    }
    assert set(acp_methods().AGENT_METHODS.values()) - experimental <= stable | unstable


def test_client_methods_are_listed_and_only_marked_called() -> None:
    rows = table("docs/protocol.md", "method | used")
    said = program_texts()
    assert {name for row in rows for name in codes(row[0])} >= {
        name for name in acp_methods().CLIENT_METHODS.values() if not name.startswith("mcp/")
    }
    for row in rows:
        assert {name in said for name in codes(row[0])} == {row[1] == "yes"}


def test_the_capabilities_are_what_initialize_answers() -> None:
    answered = dict(flat(greeting()["agentCapabilities"]))
    rows = table("docs/protocol.md", "`agentCapabilities`")
    assert {codes(row[0])[0]: json.loads(codes(row[1])[0]) for row in rows} == answered


def test_the_updates_are_those_that_events_become() -> None:
    made = {projection.update(1, event).__struct_config__.tag for event in one_of_each_event()}
    made.add(projection.commands(()).__struct_config__.tag)  # no event of the log
    rows = table("docs/protocol.md", "`sessionUpdate`")
    assert {name for row in rows if row[1] == "yes" for name in codes(row[0])} == made


def test_every_update_of_the_protocol_is_listed() -> None:
    known = re.findall(r'session_update: Annotated\[Literal\["(\w+)"', acp_schema())
    assert known
    listed = {
        name for row in table("docs/protocol.md", "`sessionUpdate`") for name in codes(row[0])
    }
    assert {name for name in known if not name.startswith("plan_")} <= listed


def test_the_meta_keys_are_those_of_the_code() -> None:
    keys = {code for row in table("docs/protocol.md", "`_meta` key") for code in codes(row[0])}
    assert keys == {
        projection.SEQ,
        projection.PARENT,
        meta_keys.NOTE,
        meta_keys.ORIGIN,
        meta_keys.LINE,
        meta_keys.OLD_LINE,
        opening.AFTER,
        lifecycle.AWAY_POLICY,
        listing.CHANNEL,
        listing.TRANSCRIPT,
        deduplication.IDEMPOTENCY,
        forks.MESSAGE,
        forks.FORKED,
        steering.STEERING,
        whole_prompts.WHOLE,
        new_session.ACCOUNT,
        permission_requests.OWN_REASON,
        replay.REPLAY,
    }
    assert keys == {one for one in program_texts() if re.fullmatch(r"pykoclaw\.dev/\w+", one)}


def test_each_key_and_notification_has_conformance_rule() -> None:
    rules = "".join(
        text(f"tests/conformance/rules/{one}.py") for one in ("own_meta", "own_updates")
    )
    rows = (
        *table("docs/protocol.md", "`_meta` key"),
        *table("docs/protocol.md", "key of `claudeCode.options`"),
    )
    keys = {code for row in rows for cell in row[:2] for code in codes(cell)}
    named = {one.removeprefix("pykoclaw.dev/") for one in keys if one.startswith("pykoclaw.dev/")}
    told = {one.rpartition("/")[2] for one in (EVENT, QUESTION, SETTLED)}
    assert [one for one in named | told if not re.search(rf"\b{one}\b", rules)] == []


def test_documented_claude_options_match_code() -> None:
    rows = table("docs/protocol.md", "key of `claudeCode.options`")
    assert {code for row in rows for code in codes(row[0])} == session_meta.SDK_KEYS.keys()
    assert {code for row in rows for code in codes(row[1])} == session_meta.OWN_KEYS.keys()
    listed = text("docs/protocol.md").split("The variables that a client may set:")[1]
    assert set(codes(listed.split("Their")[0])) == ENVIRONMENT


def test_the_config_options_are_those_of_the_code() -> None:
    rows = table("docs/protocol.md", "option")
    able = choices.Offer(models=(choices.Model("default", "Default", fast=True),))
    selection = choices.selection(choices.Chosen("plan", "default"), able, bypass=False)
    options = projection.config_options(selection)
    assert [(codes(row[0])[0], codes(row[1])[0]) for row in rows] == [
        (one.id, one.category) for one in options
    ]


def test_the_modes_are_those_that_can_be_chosen() -> None:
    rows = [(codes(row[0])[0], row[1]) for row in table("docs/protocol.md", "mode")]
    for (name, said), mode in zip(rows, (*choices.MODES, choices.BYPASS), strict=True):
        assert name == mode.id
        assert said.startswith(mode.description)
    models = codes(
        section("docs/protocol.md", "Methods that clients call").split(
            "before the first one they are"
        )[1]
    )
    assert models[: len(choices.MODELS)] == [one.id for one in choices.MODELS]


def test_our_own_methods_are_those_of_the_daemon() -> None:
    rows = table("docs/protocol.md", "own method")
    own = {one for one in program_texts() if re.fullmatch(r"_pykoclaw\.dev/[a-z/]+[a-z]", one)}
    told = (
        set(codes(section("docs/protocol.md", "Our own methods").split("sends notifications")[1]))
        & own
    )
    assert {codes(row[0])[0] for row in rows} | told == own
    assert told == {EVENT, QUESTION, SETTLED, TAKEN, WAITS}


def test_the_error_codes_are_those_of_the_exceptions() -> None:
    rows = {(int(row[0]), codes(row[1])[0]) for row in table("docs/protocol.md", "code")}
    assert rows == {(error.code, error.__name__) for error in errors.AcpError.__subclasses__()}


def test_the_error_kinds_are_those_of_the_code() -> None:
    documented = [codes(row[0])[0] for row in table("docs/protocol.md", "`errorKind`")]
    refusals = text("docs/protocol.md").split("While the database cannot be written,")[1]
    refusals = refusals.split("A client that was started by Claude")[0]
    documented += sorted({kind for kind in codes(refusals) if kind in set(ErrorKind)})
    assert sorted(documented) == sorted(ErrorKind)


def test_kinds_that_are_made_from_parts_are_members() -> None:
    named = set(get_args(AssistantMessageError)) - {"unknown"}
    conditions = {f"store_{state}" for state in DatabaseState} - {"store_writable"}
    assert named | conditions <= set(ErrorKind)
    starts = {error.kind for error in every(errors.StartupError)}
    assert starts <= set(ErrorKind)


def test_the_stop_reasons_are_those_of_the_protocol() -> None:
    documented = {codes(row[0])[0] for row in table("docs/protocol.md", "`stopReason`")}
    (reasons,) = re.findall(r"^StopReason = Literal\[(.+)\]$", acp_schema(), re.MULTILINE)
    assert documented == set(re.findall(r"\w+", reasons))


def test_the_limits_are_those_of_the_code() -> None:
    limits = section("docs/protocol.md", "Limits")
    assert f"| {framing.MAX_LINE_IN >> 20} MiB; a longer" in limits
    assert f"| a line to the client | {framing.MAX_LINE_OUT >> 20} MiB; an update" in limits
    assert f"| concurrent requests of a client | {MAX_CALLS:,};" in limits
    assert f"above {MOST_OPEN:,} the client is not read" in limits
    assert f"| {queue.MOST_WAITING}, with {queue.MOST_TEXT:,} characters; -32012 |" in limits
    assert f"a prompt of a scheduled task | {queue.MOST_TEXT:,} characters; " in limits
    assert f"`shared.prompt` | {framing.MAX_PROMPT_EARLY >> 10} KiB as JSON" in limits
    assert f"`questions/answer`) | {ranges.MAX_WORDS:,} characters each" in limits
    assert (
        f"| {queue.MOST_WAITING_ALL:,}, with {queue.MOST_TEXT_ALL:,} characters; -32012 |" in limits
    )
    assert f"| within {admission.HELLO:g} s |" in limits
    assert f"| within {admission.COMMAND:g} s |" in limits
    assert f"| unread output of all clients | {sockets.MOST_UNREAD >> 20} MiB" in limits
    assert f"| a request's `id` | {jsonrpc.MAX_ID:,} bytes |" in limits
    assert (
        f"| an image in a prompt | {attachments.MAX_IMAGE >> 20} MiB, {attachments.MAX_SIDE:,} pixels in each"
        f" direction, {attachments.MAX_PIXELS // 10**6} million in all; -32602 |" in limits
    )
    assert (
        f"| an embedded file of a prompt | {attachments.MAX_FILE >> 20} MiB, or {prompt.MAX_TEXT:,} characters"
        in limits
    )
    assert f"of a prompt together | {attachments.MAX_ALL >> 20} MiB; -32602 |" in limits
    assert f"image or file of a prompt | {framing.MAX_LONG_LINE_OUT >> 20} MiB to" in limits
    assert f"| content blocks of a prompt | {prompt.MAX_BLOCKS:,} |" in limits
    assert (
        f"| a line before `initialize`, and any message but a prompt | {framing.MAX_LINE_EARLY >> 20} MiB"
        in limits
    )
    assert reading.MAX_OTHER == framing.MAX_LINE_EARLY
    assert (
        f"| values in a message | {long_lines.MOST_VALUES:,}; at most {long_lines.MOST_DEPTH} levels deep"
        in limits
    )
    assert (
        f"{long_lines.MOST_BYTES / 2**20:g} MiB outside of texts above {long_lines.KEPT:,} bytes"
        in limits
    )
    assert f"| {given_servers.MAX_SERVERS}, {lifecycle.MAX_DIRECTORIES:,}; -32602 |" in limits
    assert f"| {ranges.MAX_NAME} characters |" in limits
    assert lines.MAX_NUMBER == 2**53
    assert (
        f"| incomplete lines of all clients and fronts | {line_room.MOST >> 20} MiB; above it, one"
        in limits
    )
    assert (
        f"| {line_room.PATIENCE:g} s without a byte, {line_room.WHOLE:g} s in all; a quarter"
        in limits
    )
    assert f"| a link in a prompt | {prompt.MAX_LINK:,} characters |" in limits
    assert f"| {folding.PART:,} bytes as JSON; longer" in limits
    assert events.MAX_TEXT * 6 < folding.PART
    assert f"| {texts.MAX_SHOWN:,} characters; beginning" in limits
    assert f"| {results.MAX_IMAGE >> 20} MiB of base64" in limits
    assert f"| {texts.MAX_TITLE} characters;" in limits
    assert f"| {texts.MAX_ASKED:,} characters;" in limits
    assert f"| {tool_results.MAX_RAW:,} characters; `content` has more |" in limits
    assert f"requires permission | {whole.MOST >> 20} MiB as JSON |" in limits


# --- parts


def every(base: type[errors.StartupError]) -> Iterator[type[errors.StartupError]]:
    """The class and all that are made from it."""
    yield base
    for one in base.__subclasses__():
        yield from every(one)


def flat(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def one_of_each_event() -> list[events.Event]:
    made: list[events.Event] = [
        events.UserMessage("m", {"type": "text", "text": "t"}),
        events.Text("m", "t"),
        events.Thinking("m", "t"),
        events.ToolStarted("c", "Bash", "Bash: ls", "execute"),
        events.ToolProgressed("c"),
        events.ToolEnded("c", "completed"),
        events.Usage(1, 2),
        events.Plan(()),
        events.ModeChanged("plan"),
        events.ConfigChanged(
            choices.selection(choices.Chosen("plan", "default"), None, bypass=False)
        ),
        events.TitleChanged("t"),
        events.Failure("m", "t", "k"),
    ]
    assert {type(event) for event in made} == set(get_args(events.Event))
    return made


def test_command_without_its_tools_is_named() -> None:
    (line,) = (one for one in text("docs/protocol.md").split("\n* ") if "`/loop`" in one)
    assert [one for one in options.DISALLOWED if f"`{one}`" not in line] == []
    assert "loop" in choices.UNFIT
