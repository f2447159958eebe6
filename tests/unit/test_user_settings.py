"""For which settings files of the user's own Claude does without all that they say, as the CLI was
seen to do with a rule of `permissions.deny` in them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import get_args

import pytest
from claude_agent_sdk.types import PermissionMode

from pykoclaw_acp.sessions.user_settings import LARGEST, trouble

_DEEP = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "settings.json"


def permissions(member: str) -> bytes:
    return f'{{"permissions": {{{member}}}}}'.encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" \n",
        b"{}",
        b'\xef\xbb\xbf{"permissions": {}}',
        b'{"theme": "\xff", "other": "\\ud800"}',
        b'{"other": ' + b"1" * 5000 + b"}",
        b'{"other": 1e999}',
        _DEEP,
        b'{"model": 3, "model": "opus"}',
        b'{"model": "", "env": {"A": 3}, "hooks": "x"}',
        b'{"hooks": {"Stop": 3, "PreToolUse": null}}',
        b'{"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": []}]}}',
        permissions('"allow": [], "deny": [3, "Read"], "ask": [], "other": 3'),
        *(permissions(f'"defaultMode": "{one}"') for one in (*get_args(PermissionMode), "manual")),
    ],
    ids=lambda one: one[:60].decode(errors="replace"),
)
def test_what_claude_heeds_is_not_named(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    assert trouble(str(path)) == ""


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        (b'{"permissions":\n {},}', "is not valid JSON (line 2, column "),
        (b"// mine\n{}", "is not valid JSON (line 1, column 1)"),
        (b"[]", "is not a JSON object"),
        (b'{"a": NaN}', "is not valid JSON: it has NaN"),
        (b'{"a": [-Infinity]}', "is not valid JSON: it has -Infinity"),
        (b'{"a": Infinity}', "is not valid JSON: it has Infinity"),
        (b'{"permissions": null}', "has no object in `permissions`"),
        (b'{"permissions": ["Read"]}', "has no object in `permissions`"),
        (b'{"model": 3}', "has no text in `model`"),
        (b'{"env": []}', "has no object in `env`"),
        (permissions('"allow": "Read"'), "has no list in `permissions.allow`"),
        (permissions('"deny": {}'), "has no list in `permissions.deny`"),
        (permissions('"ask": null'), "has no list in `permissions.ask`"),
        (permissions('"defaultMode": "foo"'), "has no permission mode of Claude in `permissions.defaultMode`"),
        (permissions('"defaultMode": null'), "has no permission mode of Claude in `permissions.defaultMode`"),
        (permissions('"defaultMode": []'), "has no permission mode of Claude in `permissions.defaultMode`"),
        (b'{"hooks": {"PreToolUse": 3}}', "has no list of matchers with hooks in `hooks.PreToolUse`"),
        (b'{"hooks": {"PreToolUse": [{}]}}', "has no list of matchers with hooks in `hooks.PreToolUse`"),
        (b'{"a": "' + b"x" * LARGEST, "is larger than 2048 KiB"),
    ],
    ids=lambda one: one[:60].decode() if isinstance(one, bytes) else "",
)  # fmt: skip
def test_what_claude_leaves_out_is_named(path: Path, data: bytes, wrong: str) -> None:
    path.write_bytes(data)
    assert trouble(str(path)).startswith(wrong)


def test_non_file_is_named_and_absence_is_not(path: Path) -> None:
    assert trouble(str(path)) == ""
    path.symlink_to(path.name)
    assert trouble(str(path)) == "cannot be read (Too many levels of symbolic links)"
    path.unlink()
    path.symlink_to("nowhere")
    assert trouble(str(path)) == ""
    path.unlink()
    path.mkdir()
    assert trouble(str(path)) == "is not a file"
    path.rmdir()
    os.mkfifo(path)
    assert trouble(str(path)) == "is not a file"


def test_file_of_claudes_maximum_size_is_read(path: Path) -> None:
    path.write_bytes(b'{"model": 3, "a": "' + b"x" * (LARGEST - 21) + b'"}')
    assert path.stat().st_size == LARGEST
    assert trouble(str(path)) == "has no text in `model`"
