"""Long outputs of commands and MCP tools, which the CLI keeps in files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.model.events import TextPart, ToolEnded
from pykoclaw_acp.protocol import tool_results
from pykoclaw_acp.translation import kept_outputs
from pykoclaw_acp.translation.results import result

LINES = "".join(f"{n}\n" for n in range(100_000))
SIZE = "Output too large (575.1KB). Full output saved to: "
CAPPED = "Output exceeded the 64MB persist limit; only the first 64MB were saved to: "


WORDS = (
    "Error: result (271,901 characters) exceeds maximum allowed tokens. Output has been saved to "
)
REQUIREMENTS = ".\nFormat: Plain text\nREQUIREMENTS FOR SUMMARIZATION/ANALYSIS/REVIEW:\n- You MUST read the file."


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The CLI's file of an output."""
    file = tmp_path / "projects/-w/5e55/tool-results/b1.txt"
    file.parent.mkdir(parents=True)
    file.write_text(f"{LINES}THE-END\n")
    return file


def given(file: Path, said: str = SIZE) -> str:
    return (
        f"<persisted-output>\n{said}{file}\n\nPreview (first 2KB):\n0\n1\n...\n</persisted-output>"
    )


def details(file: Path, size: int = 588_903) -> dict[str, Any]:
    return {
        "stdout": LINES[:30_000], "stderr": "", "interrupted": False, "isImage": False,
        "persistedOutputPath": str(file), "persistedOutputSize": size,
    }  # fmt: skip


def shown(text: str, told: object, projects: Path, live: str = "") -> ToolEnded:
    text, told = kept_outputs.complete(text, told, str(projects), live)
    found = result("Bash", text, failed=False, details=told)
    return ToolEnded("c", "completed", found.parts, exit_code=found.exit_code)


def words(event: ToolEnded) -> str:
    return "\n".join(part.text for part in event.content if isinstance(part, TextPart))


@pytest.mark.parametrize("of_subagent", [False, True])
def test_end_and_file_are_shown_with_beginning(
    of_subagent: bool, kept: Path, tmp_path: Path
) -> None:
    told = None if of_subagent else details(kept)
    ended = shown(given(kept), told, tmp_path / "projects")
    text = words(ended)
    assert text.startswith("```\n0\n1\n")
    assert text.endswith("99999\nTHE-END\n```")
    left = os.path.getsize(kept) - kept_outputs.MOST
    mark = f"\n… {left / 1024:.0f} KiB left out; the whole is in {kept} …\n"
    assert mark in text
    assert kept_outputs.MOST - 50 < len(text) - len(mark) < kept_outputs.MOST + 50
    raw = tool_results.raw_output(ended) or {}
    assert f"```\n{raw['output']}\n```" == text, "not cut another time"


def test_large_result_of_server_has_both_ends(kept: Path, tmp_path: Path) -> None:
    given = f"{WORDS}{kept}{REQUIREMENTS}"
    assert kept_outputs.is_kept("mcp__s__t", given)
    text, told = kept_outputs.complete(given, {"content": given}, str(tmp_path / "projects"))
    assert text.startswith("0\n1\n")
    assert text.endswith("99999\nTHE-END\n")
    assert f" KiB left out; the whole is in {kept} …\n" in text
    assert told == {"content": given}
    cut = f"{given}\nNote: the output exceeded the persist byte limit; the saved file contains"
    text, _ = kept_outputs.complete(cut, None, str(tmp_path))
    assert text.endswith(f"… the rest is left out; its first 575 KiB are in {kept} …\n")


def test_result_whose_file_is_gone_names_it(kept: Path, tmp_path: Path) -> None:
    kept.unlink()
    text, _ = kept_outputs.complete(f"{WORDS}{kept}{REQUIREMENTS}", None, str(tmp_path))
    assert text == f"{WORDS}{kept}.".removeprefix("Error: ")


def test_texts_that_tools_write_themselves_stay(tmp_path: Path) -> None:
    for tool, text in (("Read", WORDS), ("Bash", WORDS), ("mcp__s__t", given(tmp_path))):
        assert not kept_outputs.is_kept(tool, text)
    elsewhere = f"{WORDS}/etc/passwd{REQUIREMENTS}"
    for text in ("Error: result (none)", elsewhere):
        assert kept_outputs.complete(text, None, str(tmp_path)) == (text, None)


def test_output_that_fits_is_whole(kept: Path, tmp_path: Path) -> None:
    kept.write_text("a\nb\n")
    assert words(shown(given(kept), details(kept, 4), tmp_path)) == "```\na\nb\n```"


def test_end_beyond_file_is_what_was_seen(kept: Path, tmp_path: Path) -> None:
    told = details(kept, 90_000_000)
    text = words(shown(given(kept, CAPPED), told, tmp_path, live="seen\nlast\n"))
    assert "THE-END" not in text
    assert f"\n… the rest is left out; its first 575 KiB are in {kept} …\nseen\nlast\n```" in text
    unread = words(shown(given(kept, CAPPED), None, tmp_path / "elsewhere"))
    assert unread == "```\n0\n1\n```\n(Only the beginning of more than 64MB is shown.)"


def test_only_claudes_own_files_are_read(kept: Path, tmp_path: Path) -> None:
    projects = tmp_path / "projects"
    secret = tmp_path / "tool-results/secret"
    secret.parent.mkdir()
    secret.write_text("hidden")
    (link := kept.with_name("link")).symlink_to(secret)
    os.mkfifo(pipe := kept.with_name("pipe"))
    beside = kept.parent.parent / "notes.txt"
    beside.write_text("hidden")
    missing = kept.with_name("none")
    climbing = kept.parent / "../../../../tool-results/secret"
    for file in (secret, link, pipe, beside, missing, climbing):
        text, told = kept_outputs.complete(given(file), details(file), str(projects))
        assert (text, told) == (given(file), details(file))


def test_other_outputs_stay_as_they_are(tmp_path: Path) -> None:
    for text in ("", "out", "<persisted-output>", "<persisted-output>\nOutput x"):
        assert kept_outputs.complete(text, {"stdout": text}, str(tmp_path)) == (
            text,
            {"stdout": text},
        )


@pytest.mark.parametrize("body", ['{"a":"' + "x" * 40_000 + '"}\n', "A: b\n\n" + "y" * 40_000])
def test_long_lines_are_cut_in_two(body: str, kept: Path, tmp_path: Path) -> None:
    kept.write_text(body)
    told = {**details(kept, len(body)), "stdout": body[:30_000]}
    text, _ = kept_outputs.complete(given(kept), told, str(tmp_path))
    first, mark, last = text.partition(f" KiB left out; the whole is in {kept} …\n")
    assert mark
    assert body.startswith(first[: kept_outputs.MOST // 2])
    assert body.endswith(last)
    assert len(last) == kept_outputs.MOST // 2


def test_text_of_the_command_itself_reads_no_file(kept: Path, tmp_path: Path) -> None:
    """It was put out, and the CLI has kept nothing."""
    told = {"stdout": given(kept), "stderr": ""}
    assert kept_outputs.complete(given(kept), told, str(tmp_path)) == (given(kept), told)
    text = given(Path(f"{kept}\0"))
    assert kept_outputs.complete(text, None, str(tmp_path)) == (text, None)
