"""Questions of Claude for its user, as ACP has a place for them: one form for all, or a permission
request for each, whose options are the choices; pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pykoclaw_acp.model.permissions import PermissionRequest
from pykoclaw_acp.model.questions import Question, described, joined
from pykoclaw_acp.neutral import neutral
from pykoclaw_acp.protocol.client_requests import (
    CreateElicitation,
    PermissionOption,
    RequestPermission,
)
from pykoclaw_acp.protocol.content import ShownContent, TextContent
from pykoclaw_acp.protocol.permissions import asked_call

IN_CHAT: Final = PermissionOption(
    option_id="in_chat", name="Answer in the chat", kind="reject_once"
)
DONE: Final = "done"
_CHOICE: Final = "choice_"
REASON_FIELD: Final = "reason"
_OPTION_META: Final = "_claude/askUserQuestionOption"  # where clients of claude-agent-acp look


def form(session_id: str, request: PermissionRequest) -> CreateElicitation:
    """`elicitation/create` for all questions: for each a field with its choices, and one for the
    user's own words; none has to be filled in.
    """
    fields: dict[str, Any] = {}
    for at, one in enumerate(request.questions):
        name = neutral(one.header) or f"Question {at + 1}"
        if one.options:
            fields[f"question_{at}"] = {**_choices(one), "title": name, **_about(one)}
        instead = ", in place of a choice" if one.options and not one.multiple else ""
        words = {"type": "string", "title": f"{name}: in your own words{instead}"}
        fields[f"question_{at}_custom"] = words if one.options else {**words, **_about(one)}
    only = request.questions[0].question if len(request.questions) == 1 else ""
    return CreateElicitation(
        session_id=session_id,
        tool_call_id=request.tool_call_id,
        message=neutral(only, "prose") or f"Claude asks {len(request.questions)} questions.",
        mode="form",
        requested_schema={"type": "object", "properties": fields},
    )


def given(questions: Sequence[Question], content: dict[str, Any]) -> list[str]:
    """The answers in a form that was filled in, in the order of the questions; empty: none."""
    return [
        _given(one, content.get(f"question_{at}"), content.get(f"question_{at}_custom"))
        for at, one in enumerate(questions)
    ]


def poll(
    session_id: str,
    request: PermissionRequest,
    at: int,
    chosen: Sequence[str] = (),
    *,
    chat_first: bool,
) -> RequestPermission:
    """`session/request_permission` for the question `at`, of whose choices some were made.

    `chat_first`: for clients that choose the first option that allows by themselves, this is the
    one by which nothing is chosen.
    """
    one = request.questions[at]
    options = [
        PermissionOption(option_id=f"{_CHOICE}{number}", name=neutral(it.label), kind="allow_once")
        for number, it in enumerate(one.options)
        if it.label not in chosen
    ]
    if chosen:
        name = f"That is all: {neutral(joined(chosen))}"
        options.append(PermissionOption(option_id=DONE, name=name, kind="allow_once"))
    if chat_first:
        chat = PermissionOption(option_id=IN_CHAT.option_id, name=IN_CHAT.name, kind="allow_once")
        options.insert(0, chat)
    else:
        options.append(IN_CHAT)
    count = f" ({at + 1} of {len(request.questions)})" if len(request.questions) > 1 else ""
    shown = ShownContent(content=TextContent(text=described([one])))
    call = asked_call(request, f"{neutral(one.question)}{count}", [shown])
    return RequestPermission(session_id=session_id, tool_call=call, options=options)


def choice(one: Question, option_id: str) -> str | None:
    """The label of the choice that an option stands for."""
    number = option_id.removeprefix(_CHOICE)
    if option_id == number or not number.isdecimal() or int(number) >= len(one.options):
        return None
    return one.options[int(number)].label


def reason_form(session_id: str, request: PermissionRequest) -> CreateElicitation:
    """`elicitation/create` for the reason of a refusal, or for what of a plan should change."""
    title = "What should change?" if request.plan else "Why not, and what should be done instead?"
    return CreateElicitation(
        session_id=session_id,
        tool_call_id=request.tool_call_id,
        message=title,
        mode="form",
        requested_schema={
            "type": "object",
            "properties": {REASON_FIELD: {"type": "string", "title": title}},
        },
    )


def _about(one: Question) -> dict[str, str]:
    return {"description": neutral(one.question, "prose")}


def _choices(one: Question) -> dict[str, Any]:
    choices = []
    for it in one.options:
        choice: dict[str, Any] = {"const": it.label, "title": neutral(it.label)}
        if it.description:
            choice["description"] = neutral(it.description)
        if it.preview:
            choice["_meta"] = {_OPTION_META: {"preview": neutral(it.preview, "prose")}}
        choices.append(choice)
    if one.multiple:
        return {"type": "array", "items": {"anyOf": choices}}
    return {"type": "string", "oneOf": choices}


def _given(one: Question, chosen: object, words: object) -> str:
    labels = chosen if isinstance(chosen, list) else [chosen]
    known = [label for label in labels if isinstance(label, str) and label.strip()]
    own = words.strip() if isinstance(words, str) else ""
    if one.multiple:
        return joined([*known, *([own] if own else [])])
    return own or next(iter(known), "")
