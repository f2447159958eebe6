"""Selection of the model's response: its steps follow from the request alone. No I/O.

Only how often a fault with `times=N` has struck is not visible in a request; `FaultCounts` counts
it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

from .conversation import (
    RequestConversation,
    RequestPrompt,
    first_line,
    is_compaction,
    read_conversation,
)
from .directives import DIRECTIVES, ScriptError
from .script import find_script, name_scripts, parse_script
from .steps import (
    Cut,
    Hang,
    HttpError,
    Limit,
    ReportStep,
    Step,
    Steps,
    StopStep,
    StreamError,
    TextStep,
)

RequestKind = Literal["main", "side"]

_REPORT_WIDTH = 500
_SCRIPT_FINISHED = "(The script has no more steps.)"


@dataclass(frozen=True)
class ScriptedAnswer:
    """Steps to play, and the entry for the record."""

    kind: RequestKind
    conversation: RequestConversation
    steps: Steps
    script_hash: str | None = None


class FaultCounts:
    """Counts of faults with `times=N`, by the prompt that carries them."""

    def __init__(self) -> None:
        self._struck: dict[str, int] = {}

    def effective(self, steps: Steps, key: str) -> Steps:
        """Drop exhausted faults from `steps`; count those that strike now."""
        effective: list[Step] = []
        for index, step in enumerate(steps):
            if isinstance(step, HttpError | StreamError | Cut | Hang | Limit):
                if step.times is not None:
                    struck = self._struck.get(f"{key}:{index}", 0)
                    if struck >= step.times:
                        continue
                    self._struck[f"{key}:{index}"] = struck + 1
                effective.append(step)
                if not isinstance(step, Hang) and not _goes_on(step):
                    break
            else:
                effective.append(step)
        return tuple(effective)


def choose_answer(
    body: dict[str, Any], faults: FaultCounts, *, session: str, from_cli: bool
) -> ScriptedAnswer:
    """Choose the response to a request body. `session` separates the fault counts of sessions with
    equal prompts.

    A request that the CLI makes for itself (title, summary, probe) is `side` and never plays a
    script.
    """
    conversation = read_conversation(body)
    if is_compaction(body):
        return ScriptedAnswer("side", conversation, (TextStep((_summary(conversation),)),))
    if body.get("max_tokens") == 1:
        return ScriptedAnswer("side", conversation, (TextStep(("I",)), StopStep("max_tokens")))
    if from_cli and not body.get("tools"):
        return ScriptedAnswer("side", conversation, (TextStep((_side_text(body),)),))
    try:
        prompt, script = _newest(conversation)
        if script is None:
            return ScriptedAnswer("main", conversation, (_echo(conversation, prompt),))
        responses = parse_script(script)
    except ScriptError as error:
        text = f"The script cannot be played: {error}\n\nWhat a script may hold, one a line:\n{DIRECTIVES}"
        return ScriptedAnswer("main", conversation, (TextStep((text,)),))
    position = conversation.responses - prompt.responses_before
    steps = responses[position] if position < len(responses) else ()
    script_hash = hashlib.sha256(script.encode()).hexdigest()[:12]
    key = f"{session}:{len(conversation.prompts)}:{script_hash}:{position}"
    steps = faults.effective(steps, key)
    if all(isinstance(step, Hang) or _goes_on(step) for step in steps):
        steps += (TextStep((_SCRIPT_FINISHED,)),)
    steps = tuple(
        TextStep((report(conversation),)) if isinstance(step, ReportStep) else step
        for step in steps
    )
    return ScriptedAnswer("main", conversation, steps, script_hash)


def report(conversation: RequestConversation) -> str:
    """One line per message of the request: role, text, tool calls and their results."""
    lines = [
        f"This request held {len(conversation.messages)} messages, {len(conversation.prompts)} from the user:"
    ]
    for number, message in enumerate(conversation.messages, start=1):
        parts = [name_scripts(message.text)] if message.text else []
        parts += [f"[{use.name} {use.id}]" for use in message.tool_uses]
        parts += [f"[result of {result.id}] {result.text}" for result in message.tool_results]
        line = " ".join(" ".join(parts).split())
        lines.append(
            f"{number}. {message.role}: {line[:_REPORT_WIDTH]}{'…' if len(line) > _REPORT_WIDTH else ''}"
        )
    return "\n".join(lines)


def _newest(conversation: RequestConversation) -> tuple[RequestPrompt, str | None]:
    """The prompt to answer and its script. A prompt without a script does not end the script of the
    turn that it joined.
    """
    for prompt in reversed(conversation.prompts):
        script = find_script(prompt.text)
        if script is not None or not prompt.folded:
            return prompt, script
    return RequestPrompt("", 0), None


def _goes_on(step: Step) -> bool:
    """Whether it is a limit that the response only tells of."""
    return isinstance(step, Limit) and step.status != "rejected"


def _echo(conversation: RequestConversation, prompt: RequestPrompt) -> TextStep:
    count = len(conversation.prompts)
    known = "the first message" if count == 1 else f"message {count}"
    sentences = (
        f"You said: “{first_line(prompt.text)}”. ",
        f"That is {known} from you in this conversation. ",
        "I am a scripted model: ",
        "put [[script text Hello]] into a message and I play it.",
    )
    return TextStep(sentences)


def _summary(conversation: RequestConversation) -> str:
    lines = [
        f"{n}. {first_line(name_scripts(p.text))}"
        for n, p in enumerate(conversation.prompts, start=1)
    ]
    return "\n".join(
        (
            "<analysis>",
            "Scripted.",
            "</analysis>",
            "<summary>",
            "The user said:",
            *lines,
            "</summary>",
        )
    )


def _side_text(body: dict[str, Any]) -> str:
    output = body.get("output_config", {}).get("format", {})
    return json.dumps(_instance(output["schema"])) if "schema" in output else "OK"


def _instance(schema: dict[str, Any]) -> object:
    """The smallest value that a JSON schema accepts."""
    if "enum" in schema:
        return schema["enum"][0]
    properties: dict[str, dict[str, Any]] = schema.get("properties", {})
    values: dict[str, object] = {
        "object": {name: _instance(properties[name]) for name in schema.get("required", [])},
        "array": [],
        "boolean": False,
        "integer": 0,
        "number": 0,
    }
    return values.get(schema.get("type", ""), "Scripted session")
