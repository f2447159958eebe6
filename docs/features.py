"""What docs/comparison.md compares: features, each with a conversation that has it, and who shows more."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

SUBSCRIPTION: Final = {"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-scripted"}
QUIET: Final = 1.5  # s without a message, after which a turn that was answered is taken as over


OURS: Final = "pykoclaw-acp"
BOTH: Final = "both the same"
EACH: Final = "each"
THEIRS: Final = "claude-agent-acp"


@dataclass(frozen=True)
class Feature:
    """Something that a user sees, and a conversation that has it.

    `plain`: to a client without optional capabilities. `settle` (s): how long to go on looking after
    the last answer. `choose`: answer to questions, by the option's kind. `mode`: permission mode, set
    before. `settings`: the user's of Claude. `environment`: of the agent.
    """

    name: str
    prompts: tuple[str, ...]
    plain: bool = False
    settle: float = QUIET
    choose: str = "allow_once"
    mode: str = "default"
    servers: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


class Verdict(NamedTuple):
    """What each agent shows of a feature, who shows more, and `why` the other does so in something."""

    ours: str
    peer: str
    more: str = OURS
    why: str = ""


BASH_FAILS: Final = """[[script
tool Bash {"command": "ls missing; exit 3", "description": "List missing"}
text Done.
]]"""
SUBAGENT: Final = """[[script
tool Agent {"description": "Count files", "subagent_type": "claude", "prompt": "[[script bash ls ;; text One.]]"}
text Started.
]]"""
TASKS: Final = """[[script
tool TaskCreate {"subject": "Write", "description": "Write it", "activeForm": "Writing"}
tool TaskUpdate {"taskId": "1", "status": "in_progress"}
tool TaskUpdate {"taskId": "1", "status": "completed"}
text Done.
]]"""
QUESTION: Final = """[[script
tool AskUserQuestion {"questions": [{"question": "Which color?", "header": "Color", "multiSelect": false, \
"options": [{"label": "Red", "description": "Warm"}, {"label": "Blue", "description": "Cold"}]}]}
text Done.
]]""".replace("\\\n", "")
PLAN: Final = """[[script
tool ExitPlanMode {"plan": "# Plan"}
text Going on.
]]"""
NOTEBOOK_EDIT: Final = """[[script
read book.ipynb
tool NotebookEdit {"notebook_path": "book.ipynb", "cell_id": "c1", "new_source": "print(2)"}
text Done.
]]"""
SAYS: Final = '{"decision": "block", "reason": "not read well"}'
OBJECTS: Final = {
    "hooks": {"PostToolUse": [{"hooks": [{"type": "command", "command": f"echo '{SAYS}'"}]}]}
}
STEPS: Final = "for n in 1 2 3 4 5 6; do echo step $n; sleep 1; done"
RUNS: Final = f"[[script\nbash {STEPS}\ntext Done.\n]]"
PLAIN: Final = ", plain"  # to a client without optional capabilities

FEATURES: Final = (
    Feature("Thinking and text", ("[[script thinking Let me see. ;; text I see.]]",)),
    Feature("The title of a session", ("Look at the parser. [[script text Done.]]",)),
    Feature("A command that fails", (BASH_FAILS,)),
    Feature("A command that runs for 6 s", (RUNS,)),
    Feature(f"A command that runs for 6 s{PLAIN}", (RUNS,), plain=True),
    Feature(
        "Part of a file",
        (
            '[[script tool Read {"file_path": "lines.txt", "offset": 12, "limit": 3} ;; text Done.]]',
        ),
    ),
    Feature(
        "An edit",
        ("[[script\nread lines.txt\nedit lines.txt <<< line 40 => line forty\ntext Done.\n]]",),
    ),
    Feature(
        "A file that is written anew",
        ("[[script\nread lines.txt\nwrite lines.txt <<< only this\ntext Done.\n]]",),
    ),
    Feature(
        "A tool of an MCP server",
        ("[[script tool mcp__local__whisper {} ;; text Done.]]",),
        servers=("local",),
    ),
    Feature(
        "A command in the background",
        (f"[[script\nbackground {STEPS}; exit 3\ntext Started.\n]]",),
        settle=8,
    ),
    Feature("A subagent", (SUBAGENT,), settle=5),
    Feature("A list of tasks", (TASKS,)),
    Feature("A plan to approve", (PLAN,), mode="plan"),
    Feature("A question of Claude", (QUESTION,)),
    Feature(f"A question of Claude{PLAIN}", (QUESTION,), plain=True),
    Feature("An overloaded model", ("[[script error 529 times=1 Overloaded ;; text There.]]",)),
    Feature(
        "A rate limit with a time",
        ("[[script error 429 retry-after=3 times=1 Slow down ;; text There.]]",),
    ),
    Feature("A request that is refused", ("[[script error 400 No such thing]]",)),
    Feature("`/compact` after `/context`", ("One.", "/context", "/compact")),
    Feature(f"`/compact` after `/context`{PLAIN}", ("One.", "/context", "/compact"), plain=True),
    Feature("`/clear`", ("One.", "/clear", "Two.")),
    Feature("An image", ('[[script tool Read {"file_path": "dot.png"} ;; text Done.]]',)),
    Feature("A cell of a notebook", (NOTEBOOK_EDIT,)),
    Feature(
        "A call that the user refuses",
        ("[[script bash touch a ;; text Done.]]",),
        choose="reject_once",
    ),
    Feature(
        "A connection that is lost",
        ("[[script words 20ms This far. ;; cut times=1 ;; text There.]]",),
    ),
    Feature(
        "A usage limit that is near",
        ("[[script limit allowed_warning used=92 ;; text There.]]",),
        environment=SUBSCRIPTION,
    ),
    Feature(
        "A usage limit that is reached",
        ("[[script limit rejected resets=3000]]",),
        environment=SUBSCRIPTION,
    ),
    Feature("A hook that objects", ("[[script read lines.txt ;; text Done.]]",), settings=OBJECTS),
    Feature("An MCP server that does not work", ("[[script text Hi.]]",), servers=("broken",)),
    Feature(
        "A model in place of another",
        ("[[script error 529 times=3 ;; text There.]]",),
        settings={"fallbackModel": ["haiku"]},
        environment={"CLAUDE_CODE_MAX_RETRIES": "3"},
    ),
)

VERDICTS: Final = {
    "Thinking and text": Verdict(
        "the thought, the text, usage with its cost at the end",
        "the text, usage when the answer begins and at its end",
        EACH,
        "usage is told once a second at most, since some clients keep each update",
    ),
    "The title of a session": Verdict(
        "the first words of the prompt; Claude's title with `PYKOCLAW_TITLES=claude`",
        "Claude's title",
        THEIRS,
        "the request for a title costs tokens, and is made for those who have set it",
    ),
    "A command that fails": Verdict(
        "its purpose, the command, its output, its exit code",
        "the command, its output, its exit code",
    ),
    "A command that runs for 6 s": Verdict(
        "each line when it is written, in a terminal", "all lines at the end, in a terminal"
    ),
    f"A command that runs for 6 s{PLAIN}": Verdict(
        "each line when it is written, as text", "all lines at the end"
    ),
    "Part of a file": Verdict(
        "which lines, at once; the text alone", "which lines, in three steps; with line numbers"
    ),
    "An edit": Verdict(
        "the hunk with context at its true lines; what “always” allows",
        "the hunk with context at its lines",
    ),
    "A file that is written anew": Verdict(
        "the whole difference, in the permission request",
        "a new file, and at the end the difference",
    ),
    "A tool of an MCP server": Verdict(
        "server and tool by their names for people", "the name by which Claude calls it"
    ),
    "A command in the background": Verdict(
        "its output until it ends; why Claude speaks again",
        "`completed` at launch; no output",
    ),
    "A subagent": Verdict(
        "its kind, calls, report and usage, until it ends",
        "its calls; `completed` at launch",
    ),
    "A list of tasks": Verdict("the plan, as it changes", "nothing"),
    "A plan to approve": Verdict(
        "the plan, to approve with or without edits, or to send back",
        "the plan, to approve, also with auto and bypass",
        EACH,
        "a plan leads to a mode in which nobody is asked only if Claude was in that before",
    ),
    "A question of Claude": Verdict("a form, and the answer", "a form, and the words for Claude"),
    f"A question of Claude{PLAIN}": Verdict(
        "its choices, one question at a time", "an error: Claude has no such tool"
    ),
    "An overloaded model": Verdict("that it waits, and how often", "nothing"),
    "A rate limit with a time": Verdict("that it waits, and how long", "nothing"),
    "A request that is refused": Verdict(
        "a sentence, and an error with its kind", "what the service said, twice"
    ),
    "`/compact` after `/context`": Verdict(
        "one report; time and tokens",
        "the report twice; the summary",
        EACH,
        "Claude's summary of the conversation is for Claude; what was said stays in the log",
    ),
    f"`/compact` after `/context`{PLAIN}": Verdict(
        "one report; time and tokens",
        "the report twice; time and tokens",
    ),
    "`/clear`": Verdict("that Claude has forgotten, the context as empty", "an empty plan"),
    "An image": Verdict("the image", "the image", BOTH),
    "A cell of a notebook": Verdict("a difference of the cell", "the words for Claude"),
    "A call that the user refuses": Verdict(
        "that it was refused, with the user's reason if the client gives one",
        "the words for Claude",
    ),
    "A connection that is lost": Verdict(
        "that it was lost, how long it waits, what was cut off", "the beginning of the answer twice"
    ),
    "A usage limit that is near": Verdict("how much is used, and until when", "nothing"),
    "A usage limit that is reached": Verdict(
        "when it ends, in the user's time zone, and for programs", "when it ends, in words alone"
    ),
    "A hook that objects": Verdict("which hook, and what it said", "nothing"),
    "An MCP server that does not work": Verdict(
        "which one, and why", "which one, and that `/mcp` says why"
    ),
    "A model in place of another": Verdict("both models", "nothing"),
}
