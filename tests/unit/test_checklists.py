"""What a list and a load of sessions, and calls that outlive their turn, have to do, as other agents
were seen to get it wrong: each has tests.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parent.parent

LISTS: Final[dict[str, tuple[str, ...]]] = {
    "what there is is advertised": (
        "e2e/test_protocol.py test_initialize_is_honest",
        "conformance/rules/updating.py methods_are_called_as_advertised",
    ),
    "newest first, ties by id, in pages; wrong cursors are refused": (
        "integration/test_list_contract.py test_prompted_sessions_are_listed_newest_first",
        "integration/test_list.py test_sessions_of_one_moment_are_in_order",
        "integration/test_list.py test_list_pages_hold_while_sessions_come_and_go",
        "integration/test_list.py test_unlistable_request_is_refused",
    ),
    "titles are a name, or the user's words in a line": (
        "unit/test_wrappings.py test_title_is_first_user_words_in_one_line",
        "integration/test_list.py test_a_title_is_stored_told_and_kept",
    ),
    "a directory has its own sessions; helpers are hidden, unprompted ones can be opened": (
        "integration/test_list_contract.py test_a_directory_has_its_own_sessions",
        "integration/test_list.py test_all_paths_to_a_directory_list_its_sessions",
        "integration/test_list_contract.py test_deleted_and_auxiliary_sessions_are_left_out",
        "conformance/rules/sessions.py a_session_without_prompts_can_be_resumed",
    ),
    "one that is reached through added directories appears once": (
        "integration/test_list.py test_session_with_added_directories_is_listed_once",
    ),
    "rows say where, when and what, and cost the same among many": (
        "integration/test_list.py test_a_row_says_where_when_and_what",
        "integration/test_list.py test_a_page_costs_the_same_among_many_sessions",
        "integration/test_list.py test_a_page_is_one_trip_to_a_reader",
    ),
}

LOADS: Final[dict[str, tuple[str, ...]]] = {
    "all updates come before the answer, in order, which has the session's choices": (
        "conformance/rules/sessions.py loading_replays_everything_before_the_answer",
        "integration/test_surface.py test_choice_is_shown_to_all_and_survives_restart",
    ),
    "a message is one chunk, with the id it had": (
        "integration/test_replay.py test_a_message_over_several_pages_is_one_chunk",
        "unit/test_folding.py test_replay_from_any_place_matches_live_events",
    ),
    "calls are as they were live; without a result they have failed": (
        "e2e/test_seen_tools.py test_tools_read_well_live_again_and_imported",
        "integration/test_open_calls.py test_dead_workers_calls_fail_with_reason_keeping_output",
    ),
    "no control characters, no hidden or secret thoughts": (
        "unit/test_plain.py test_pieces_and_rest_are_the_whole_text",
        "e2e/test_seen_background.py test_hidden_thoughts_of_subagents_reach_no_client",
        "e2e/test_seen_meanwhile.py test_rich_clients_get_notices_and_compaction_updates",
        "unit/test_translate.py test_thoughts_that_claude_keeps_secret_are_passed_over",
    ),
    "nobody else sees it, and two at once have everything": (
        "integration/test_replay.py test_two_concurrent_loads_each_have_whole_history",
    ),
    "an unknown id, another directory, and an unreadable log are different errors": (
        "conformance/rules/sessions.py loading_an_unknown_session_is_not_found",
        "conformance/rules/sessions.py a_session_is_not_loaded_in_another_directory",
        "integration/test_unreadable_log.py test_load_says_that_log_is_unreadable",
    ),
    "a load during a turn shows all of it once": (
        "faults/test_gapless.py test_load_during_turn_shows_everything_once",
    ),
    "a load that fails can be repeated; a cancel during it is none": (
        "integration/test_connection.py test_load_with_unreadable_log_is_an_error",
        "integration/test_replay.py test_a_cancel_during_a_replay_changes_nothing",
        "integration/test_replay.py test_client_leaving_during_load_is_gone",
    ),
    "MCP servers are connected or refused": (
        "conformance/rules/sessions.py mcp_servers_on_stdio_are_started",
        "conformance/rules/sessions.py malformed_mcp_servers_are_invalid",
        "conformance/rules/servers.py unknown_transports_are_invalid",
    ),
    "a session goes to a terminal and back, and over each kill": (
        "e2e/test_list.py test_editor_terminal_editor",
        "e2e/test_story.py test_conversation_survives_every_kill",
    ),
    "a command verifies the agent by itself: no broken pipe ends it, and no silence holds it up": (
        "e2e/test_healthcheck.py test_ours_passes_cold_and_warm",
        "e2e/test_healthcheck.py test_ours_is_told_of_agent_that_reads_nothing",
        "e2e/test_healthcheck.py test_ours_gives_up_an_agent_that_is_silent",
    ),
    "prompts of a busy session wait; ids of calls are unique; mode and usage are kept": (
        "e2e/test_turns.py test_prompts_of_a_busy_session_run_in_order",
        "unit/test_call_ids.py test_reused_id_is_a_call_of_its_own",
        "integration/test_surface.py test_mode_changed_by_claude_is_reported_and_kept",
        "integration/test_replay.py test_a_replay_ends_with_the_usage",
    ),
}

LONG_CALLS: Final[dict[str, tuple[str, ...]]] = {
    "a call that goes on is open, with its output so far": (
        "integration/test_open_calls.py test_load_shows_commands_progress_then_end_once",
        "e2e/test_seen_background.py test_commands_in_the_background",
    ),
    "Claude's looks at it, and its stop, are shown on it": (
        "e2e/test_seen_background.py test_commands_in_the_background",
    ),
    "only its real end closes it, with its exit code": (
        "e2e/test_seen_background.py test_commands_in_the_background",
        "unit/test_long_calls.py test_a_background_subagent_runs_until_its_report",
    ),
    "what comes after a load, or between the replay and what follows, comes once": (
        "e2e/test_seen_background.py test_load_amid_output_leaves_no_gap",
    ),
    "one that died with its worker or daemon has failed, and says so": (
        "e2e/test_seen_background.py test_what_dies_with_its_worker_says_so",
        "e2e/test_seen_ends.py test_turn_lost_with_daemon_and_worker_says_so",
        "integration/test_open_calls.py test_worker_dying_with_daemon_fails_calls_once",
    ),
    "several at once, monitors and subagents are kept apart": (
        "e2e/test_seen_background.py test_commands_in_the_background",
        "e2e/test_seen_background.py test_monitors_lines_start_claudes_own_turns",
        "e2e/test_seen_background.py test_subagents_in_the_background_and_waited_for",
    ),
}


@pytest.mark.parametrize("rows", [LISTS, LOADS, LONG_CALLS], ids=["lists", "loads", "long calls"])
def test_each_row_has_its_tests(rows: dict[str, tuple[str, ...]]) -> None:
    for row, tests in rows.items():
        for file, name in (one.split() for one in tests):
            found = re.search(
                rf"^(?:async )?def {name}\(", (TESTS / file).read_text(), re.MULTILINE
            )
            assert found, f"{row}: {file} {name}"
