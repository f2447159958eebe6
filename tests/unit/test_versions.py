"""Dependencies: what is pinned, with hashes; what is known of it; what is an extra."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import versions

TEXT = (versions.ROOT / "constraints.txt").read_text(encoding="utf-8")


def test_all_requirements_are_pinned_to_allowed_versions() -> None:
    pins = versions.pinned()
    developers = map(Requirement, versions.project()["dependency-groups"]["dev"])
    for requirement in [*versions.direct().values(), *developers]:
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), (
            requirement
        )


def test_every_pin_has_hashes_and_no_url() -> None:
    for block in re.split(r"\n(?=\w)", TEXT)[1:]:
        assert re.fullmatch(
            r"\S+==\S+( ; [^\\\n]+)? \\\n( +--hash=sha256:[0-9a-f]{64}( \\)?\n?)+", block
        ), block[:80]
    assert "://" not in TEXT
    assert "index" not in TEXT


def test_http_server_is_required_only_by_extras() -> None:
    known = versions.project()["project"]
    needed = {Requirement(one).name for one in known["dependencies"]}
    assert not needed & {"starlette", "uvicorn"}
    for extra in ("demo", "scripted-model"):
        assert {Requirement(one).name for one in known["optional-dependencies"][extra]} >= {
            "starlette",
            "uvicorn",
        }


def test_the_lowest_versions_are_those_of_the_bounds() -> None:
    lines = list(versions.lowest())
    assert "click==8.2.1" in lines
    assert "claude-agent-sdk==0.2.184" in lines
    assert len(lines) == len({Requirement(line).name for line in lines})


ENTRY = {
    "id": "X-1",
    "affected": [
        {
            "package": {"ecosystem": "PyPI", "name": "Click"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "8.0"}, {"fixed": "99"}]}],
        }
    ],
}


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([{"introduced": "0"}], 1),
        ([{"introduced": "8.0"}, {"fixed": "99"}], 1),
        ([{"introduced": "0"}, {"last_affected": "8.0"}], 0),
        ([{"introduced": "0"}, {"fixed": "8.1"}], 0),
    ],
)
def test_an_offline_audit_finds_what_its_files_know(
    events: list[dict[str, str]], status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ENTRY["affected"][0]["ranges"][0]["events"] = events  # type: ignore[index]
    (tmp_path / "X-1.json").write_text(json.dumps(ENTRY))
    assert versions.audit_offline(tmp_path) == status
    assert ("click" in capsys.readouterr().out) == bool(status)


def test_an_audit_of_nothing_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert versions.audit_offline(tmp_path) == versions.NOT_AUDITED
    unknown = {"name": "click", "skip_reason": "Dependency not found"}
    assert versions.report([unknown]) == versions.NOT_AUDITED
    assert versions.report([unknown, {"name": "rich", "version": "1", "vulns": []}]) == 0
    assert versions.report([{"name": "rich", "version": "1", "vulns": [{"id": "X"}]}]) == 1
    assert "1 unknown" in capsys.readouterr().out
