"""ClientTraits: how clients differ, by the name and version in `initialize`.

What one client needs and harms no other is done for all, as clients do not always give their name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from pykoclaw_acp.neutral import neutral


@dataclass(frozen=True, slots=True)
class Wrapping:
    """Marks of the text that a client puts around the user's words."""

    history: str = "[CONVERSATION HISTORY - "  # begins a summary of earlier turns
    history_end: str = "\n[END OF HISTORY - Continue"
    context: str = "[Session Context]\n"
    request: str = "\n---\n<user_request>\n"  # ends the context; the user's words follow
    request_end: str = "\n</user_request>"
    tail: str = "---\n["  # begins what stands after the user's words
    rule: str = "---"
    file: str = "=== File: "  # begins a text block that is a file


@dataclass(frozen=True, slots=True)
class ClientTraits:
    """How a client differs from others. The defaults hold for every client.

    `helper_prompts`: beginnings of its own helper prompts: for titles, follow-up questions, checks
    of tools, and what its processors take from a conversation. `catch_up_pause` (s): after the
    answer to `session/resume` it does not take updates yet. `commands_pause` (s): after the answer
    that opens a session it loses its slash commands. `ends_lines`: it shows text at the end of a
    line or of a turn, so what it is shown of another's turn needs an empty line at its end.
    `legacy_models`: it reads `models`, which ACP has given up, and does not find the models among
    the config options. `long_lines`: it takes lines of 24 MiB; Mitto and Toad end at one of 10 MiB.
    `keeps_blocks`: it keeps text only when a block of Markdown is complete, so that a process of it
    that ends has lost the open one. `keeps_spares`: it makes sessions long before it prompts them, if
    ever. `drops_replay`: of what `session/load` sends it keeps nothing. `ends_with_answer`: its
    process ends with the answer to its prompt.
    `suspends`: it may drop what it is sent of a session, and say nothing before it resumes that.
    `asks_together`: it shows several permission requests of a session at the same time.
    `titles_only`: of a permission request its user sees the title alone. `first_titles`: of a call
    its user sees the title with which that began. `drops_plan`: when it sends a prompt, it shows no
    plan any more. `progress_pause` (s): between two updates of what a call has done so far; infinite:
    it shows none. `approves_by_itself`: it may choose the first option that allows without asking its
    user. `cancels_when_absent`: an outcome `cancelled` without a `session/cancel` says that no user
    is there, rather than that one has dismissed the request.
    `shows_errors`: its user sees the error with which a prompt is answered. `wants_details`: of an
    error its user sees `data.details` alone. `misreads_digits`: it takes any error with the digits 413
    for a context that is too large, as Mitto does, which then stops its queue.
    """

    wrapping: Wrapping = Wrapping()
    helper_prompts: tuple[str, ...] = ()
    catch_up_pause: float = 0.3
    commands_pause: float = 0.2
    ends_lines: bool = True
    legacy_models: bool = False
    long_lines: bool = False
    keeps_blocks: bool = False
    keeps_spares: bool = False
    drops_replay: bool = False
    ends_with_answer: bool = False
    suspends: bool = False
    asks_together: bool = False
    titles_only: bool = False
    first_titles: bool = False
    drops_plan: bool = False
    progress_pause: float = 0.0
    approves_by_itself: bool = False
    cancels_when_absent: bool = False
    shows_errors: bool = False
    wants_details: bool = False
    misreads_digits: bool = False


DEFAULT: Final = ClientTraits()
MITTO: Final = replace(
    DEFAULT,
    helper_prompts=(
        "\nConsider this initial message in a conversation with an LLM:",
        "\nAnalyze this conversation turn and identify",
        "\nCheck if you have access to the MCP tool",
        "List ALL MCP tools currently available to you.",
        "\nSummarize this message in 2-3 words",
        "\nRewrite the following prompt",
        "Check if you have any MCP tools matching each of these name patterns.",
        # Its processors, alone and several in one prompt.
        "You are a preference curator. Your job is to analyze the user's messages",
        "You are a metadata extractor. Your job is to analyze the conversation messages",
        "You are a workspace metadata curator. Your job is to analyze the project",
        "You generate Claude Code memory files for this workspace",
        "You update Claude Code memory files for this workspace",
        "You generate `.augment/rules` files for this workspace",
        "You update `.augment/rules` files for this workspace",
        "We would like to fulfill the following requirements:\n\n## Requirement 1: ",
    ),
    commands_pause=1.0,  # on a busy machine it takes them later than the 20 ms that it needs
    legacy_models=True,
    keeps_blocks=True,
    keeps_spares=True,
    drops_replay=True,
    suspends=True,
    titles_only=True,
    first_titles=True,
    drops_plan=True,
    progress_pause=math.inf,
    approves_by_itself=True,
    cancels_when_absent=True,
    shows_errors=True,
    misreads_digits=True,
)
ACPX: Final = replace(
    DEFAULT, ends_with_answer=True, legacy_models=True, long_lines=True, shows_errors=True
)
UNNAMED: Final = "unknown"  # name of a client that gives none
# Name in lower case, prefix of the version, traits; the first match counts.
TABLE: Final[tuple[tuple[str, str, ClientTraits], ...]] = (
    ("mitto", "", MITTO),
    ("acpx", "", ACPX),
    ("zed", "", replace(DEFAULT, long_lines=True, asks_together=True, shows_errors=True)),
    ("toad", "", replace(DEFAULT, shows_errors=True, wants_details=True)),
    # Mitto does not always give its name, and keeps each update; who else gives none may show no
    # errors, keep replays, and show what a call puts out.
    (UNNAMED, "", replace(MITTO, shows_errors=False, drops_replay=False, progress_pause=5.0)),
)


def place(name: str) -> str:
    """Where the user of a client of this name has acted, in words for other clients."""
    known = {UNNAMED: "a client without a name", "cli": "a terminal"}
    return known.get(name) or neutral(name[:100])


def find(name: str | None, version: str = "") -> ClientTraits:
    """Traits of a client; None: it gave no name."""
    wanted = UNNAMED if name is None else name.lower()
    return next(
        (traits for known, begin, traits in TABLE if known == wanted and version.startswith(begin)),
        DEFAULT,
    )
