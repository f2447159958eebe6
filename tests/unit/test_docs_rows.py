"""Each row of what Claude says and clients see (docs/protocol.md) has a test."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.unit.documents import table

TESTS: Final = Path(__file__).parent.parent
MEANWHILE: Final = "e2e/test_seen_meanwhile.py"
TOOLS: Final = "e2e/test_seen_tools.py test_tools_read_well_live_again_and_imported"
STOPS: Final = "e2e/test_seen_tools.py test_images_skills_refusals_and_stops_are_shown"
BACKGROUND: Final = "e2e/test_seen_background.py"
STOPPED: Final = f"{BACKGROUND} test_cancel_stops_subagents_whose_prompt_was_answered"
COMMANDS: Final = f"{BACKGROUND} test_commands_in_the_background"
AGENTS: Final = f"{BACKGROUND} test_subagents_in_the_background_and_waited_for"
WAITS: Final = f"{BACKGROUND} test_waiting_subagents_command_and_report_are_shown"
MESSAGES: Final = f"{BACKGROUND} test_message_to_subagent_is_call_with_answer"
DECIDING: Final = "e2e/test_seen_deciding.py"
REFUSED_EDIT: Final = f"{DECIDING} test_change_that_was_refused_stays_shown"
SERVERS: Final = "e2e/test_seen_servers.py test_servers_are_announced_reconnected_and_switched_off"
BUILT_IN: Final = f"{MEANWHILE} test_compaction_clear_and_commands"
LIMITS: Final = f"{MEANWHILE} test_limits_and_hooks_are_one_line_each"
HOOKS: Final = f"{MEANWHILE} test_hooks_stopping_more_than_calls_say_so"
ANEW: Final = f"{MEANWHILE} test_fallback_model_lost_connection_and_compaction_are_shown"
TASKS: Final = f"{DECIDING} test_questions_are_answered_one_by_one"
PLANS: Final = f"{DECIDING} test_plan_is_shown_asked_and_its_mode_follows"
TITLES: Final = "e2e/test_seen_titles.py test_session_is_named_reshown_and_carried_elsewhere"
UNDELIVERED: Final = f"{BACKGROUND} test_message_that_reaches_no_subagent_has_failed"
LIMIT_OVER: Final = f"{BACKGROUND} test_command_beyond_time_limit_continues_in_background"
SHELL: Final = "e2e/test_seen_tools.py test_terminals_shell_command_and_output_are_shown"
OUTPUT: Final = f"{BACKGROUND} test_running_commands_output_comes_live_and_once"
WATCHES: Final = f"{BACKGROUND} test_monitors_lines_start_claudes_own_turns"
SETTINGS: Final = f"{MEANWHILE} test_settings_claude_leaves_out_are_named_until_corrected"
ENDS: Final = "e2e/test_seen_ends.py"
EARLY: Final = f"{ENDS} test_answer_that_service_stops_says_so"
BESIDE: Final = f"{ENDS} test_wait_and_work_of_others_are_told"
REWOUND: Final = f"{ENDS} test_rewind_in_a_terminal_stays"
OFFERS: Final = "e2e/test_seen_offers.py"
OFFERED: Final = f"{OFFERS} test_commands_and_models_are_offered_again"
WEB: Final = "e2e/test_seen_tools.py test_web_results_are_shown_live_and_again"
FORGOTTEN: Final = "e2e/test_context.py test_lost_transcript_is_told_and_made_up_for"

BODY: Final = r"^async def {}\(.*?(?=^[^\s)]|\Z)"
COMPARED: Final = re.compile(
    r"\bseen_again\(|\.load\(.*\bseen\((?:again|last)\.[^\n]*\) ==", re.DOTALL
)

SHOWN_BY: Final[dict[str, str]] = {
    "text, streamed": ANEW,
    "thinking, streamed": HOOKS,
    "any tool begins": TOOLS,
    "Bash begins": TOOLS,
    "Bash has ended": TOOLS,
    "Bash wrote much": "e2e/test_seen_tools.py test_long_output_keeps_end_that_was_seen",
    "Agent, SendMessage, WebFetch begin": AGENTS,
    "Edit begins": "e2e/test_seen_tools.py test_edits_show_each_replaced_text_at_once",
    "a file was changed, or replaced by Write": TOOLS,
    "Write begins": TOOLS,
    "Write of a new file has ended": TOOLS,
    "NotebookEdit has ended": TOOLS,
    "Read has ended": TOOLS,
    "WebSearch, WebFetch have ended": WEB,
    "ToolSearch has ended": TOOLS,
    "ReadMcpResourceTool has ended": "e2e/test_seen_tools.py test_server_is_named_as_its_user_does",
    "Skill, EnterPlanMode, ExitPlanMode have succeeded": STOPS,
    "an MCP tool": TOOLS,
    "a tool was refused, or stopped by the user": STOPS,
    "an edit was refused or stopped, or has failed": REFUSED_EDIT,
    "a tool has failed": TOOLS,
    "a command writes": OUTPUT,
    "a command goes on in the background": COMMANDS,
    "a command outlives its time limit": LIMIT_OVER,
    "a command in the background has ended": COMMANDS,
    "it was stopped, or has failed": COMMANDS,
    "Claude reads the output of such a command": COMMANDS,
    "Claude stops such a command": COMMANDS,
    "a monitor (`Monitor`) runs, writes, ends": WATCHES,
    "a subagent begins": AGENTS,
    "a subagent says or thinks something": AGENTS,
    "a subagent calls a tool": AGENTS,
    "a subagent has ended, in the background or not": AGENTS,
    "it waits for background work of its own": WAITS,
    "a call of its own is open when it ends": STOPPED,
    "… which is in the background": WAITS,
    "a subagent goes on with a message (SendMessage)": MESSAGES,
    "a message to a subagent that runs": MESSAGES,
    "such a message is read when that has ended": MESSAGES,
    "a message that reaches no subagent": UNDELIVERED,
    "a call gets no result in its turn": STOPS,
    "a turn is cancelled, also by another program": STOPS,
    "a prompt waits for another program's turn": BESIDE,
    "another program was at work at the same time": BESIDE,
    "the user has rewound the conversation elsewhere, as by Esc Esc": REWOUND,
    "the CLI or its worker dies": f"{BACKGROUND} test_what_dies_with_its_worker_says_so",
    "the daemon dies together with the worker": f"{ENDS} test_turn_lost_with_daemon_and_worker_says_so",
    "a wait for its service ([below](#waits-and-compactions))": ANEW,
    "compaction, also by `/compact`": BUILT_IN,
    "`/clear`": BUILT_IN,
    "`!` and a command in a terminal": SHELL,
    "output of its own commands, such as `/cost`": BUILT_IN,
    "`/mcp`": SERVERS,
    "`/login`, `/logout`": BUILT_IN,
    "`/rewind`, `/export`, `/status`, … of its own terminal": BUILT_IN,
    "`/usage`": BUILT_IN,
    "tokens of a request and of its answer": BUILT_IN,
    "a usage limit that is near": LIMITS,
    "a usage limit that is reached": LIMITS,
    "a hook that blocked something other than a call, objected, or failed": HOOKS,
    "a notice of the Claude CLI": EARLY,
    "another model in place of one that failed": ANEW,
    "a message that broke off, and begins anew": ANEW,
    "an MCP server that does not work": SERVERS,
    "a `settings.json` of the user that Claude leaves out": SETTINGS,
    "an early end: a limit of tokens or requests, a refusal": EARLY,
    "an error that ends the turn": f"{MEANWHILE} test_waits_are_counted_and_errors_are_told_once",
    "Claude starts a turn by itself": COMMANDS,
    "a title (`generate_session_title`)": TITLES,
    "`/rename`, also in a terminal": TITLES,
    "its plan (ExitPlanMode)": PLANS,
    "another mode, by itself or with a plan's approval": PLANS,
    "questions (AskUserQuestion)": f"{DECIDING} test_questions_are_answered_in_one_form",
    "a form of an MCP server ([elicitation](#elicitation))": f"{OFFERS} test_form_is_asked_once_its_answer_kept",
    "its slash commands": OFFERED,
    "its models, and their options": OFFERED,
    "a change of its task list (TaskCreate, TaskUpdate…)": TASKS,
    "reading about these tools, writing its plan file": PLANS,
    "its memory of the conversation is gone ([below](#a-lost-memory))": FORGOTTEN,
}


def test_every_row_has_a_test() -> None:
    assert [row[0] for row in table("docs/protocol.md", "Claude")] == list(SHOWN_BY)


def test_tests_of_the_rows_replay_after_a_daemon() -> None:
    """They exist, and compare what another daemon replays with what was seen."""
    for file, name in {tuple(one.split()) for one in SHOWN_BY.values()}:
        found = BODY.format(name)
        body = re.search(found, (TESTS / file).read_text(), re.MULTILINE | re.DOTALL)
        assert body is not None, f"{file} {name}"
        assert COMPARED.search(body[0]), f"{file} {name}"
