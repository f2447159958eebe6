"""The versions of dependencies: the lowest that are allowed, and known vulnerabilities of those
that are pinned.

`python -m tests.versions lowest` writes requirements: each direct dependency at its lower bound,
what the tests need as pinned. `python -m tests.versions audit [FOLDER]` asks pip-audit, or reads
the OSV files (JSON) of a folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]
NOT_AUDITED = 75  # EX_TEMPFAIL: nobody could be asked
PATIENCE = 120  # s, for a registry out of reach
# They look at sources, no test needs them, and they have lower bounds of their own.
CHECKERS = frozenset({"import-linter", "mypy", "ruff"})


def project() -> dict[str, Any]:
    """What pyproject.toml says."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def pinned() -> dict[str, str]:
    """The versions of constraints.txt, by normalised name."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = (Requirement(line.rstrip("\\ ")) for line in lines if line[:1].isalnum())
    return {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}


def direct() -> dict[str, Requirement]:
    """What the program itself needs, extras included."""
    known = project()["project"]
    extras = (one for extra in known["optional-dependencies"].values() for one in extra)
    return {
        canonicalize_name(one.name): one
        for one in map(Requirement, [*known["dependencies"], *extras])
    }


def lowest() -> Iterator[str]:
    """Requirements: direct dependencies at their lower bounds, the tests' own as pinned."""
    needed, pins = direct(), pinned()
    for requirement in needed.values():
        bound = next(one.version for one in requirement.specifier if one.operator == ">=")
        marker = f" ; {requirement.marker}" if requirement.marker else ""
        yield f"{requirement.name}=={bound}{marker}"
    for one in map(Requirement, project()["dependency-groups"]["dev"]):
        if (name := canonicalize_name(one.name)) not in needed and name not in CHECKERS:
            yield f"{one.name}=={pins[name]}"


def affected(entry: dict[str, Any], name: str, version: str) -> bool:
    """Whether an OSV entry is about this version (ossf.github.io/osv-schema: `affected`)."""
    for one in entry.get("affected", []):
        package = one.get("package", {})
        if package.get("ecosystem") != "PyPI" or canonicalize_name(package.get("name", "")) != name:
            continue
        if version in one.get("versions", []) or any(
            _within(each, version) for each in one.get("ranges", [])
        ):
            return True
    return False


def _within(known: dict[str, Any], version: str) -> bool:
    if known.get("type") != "ECOSYSTEM":
        return False
    inside = False
    try:
        for event in known.get("events", []):
            if "introduced" in event and (
                event["introduced"] == "0" or Version(event["introduced"]) <= Version(version)
            ):
                inside = True
            if "fixed" in event and Version(event["fixed"]) <= Version(version):
                inside = False
            if "last_affected" in event and Version(event["last_affected"]) < Version(version):
                inside = False
    except InvalidVersion:
        return True
    return inside


def audit_offline(folder: Path) -> int:
    """Compare the pins with the OSV files of the folder; 1 if one is about a pinned version."""
    files = sorted(folder.rglob("*.json"))
    if not files:
        return not_audited(f"there is no OSV file in {folder}")
    found = []
    for file in files:
        entry = json.loads(file.read_text(encoding="utf-8"))
        if not entry.get("withdrawn"):
            found += [
                (name, pin, entry["id"])
                for name, pin in pinned().items()
                if affected(entry, name, pin)
            ]
    for name, pin, known in found:
        print(f"{name} {pin}: {known}")
    print(
        f"{len(pinned())} versions against {len(files)} entries: {len(found)} vulnerabilities known."
    )
    return int(bool(found))


def not_audited(reason: str) -> int:
    """Say so, as of a test that was skipped."""
    print(f"NOT TESTED HERE: whether vulnerabilities of the pinned versions are known: {reason}.")
    return NOT_AUDITED


def audit() -> int:
    """Ask pip-audit, from an environment of its own; 1 for a vulnerability, 75 if nobody knew of
    any version.
    """
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = f"{folder}/bin/python"
        install = ["pip", "install", "-qq", "--retries", "1", "--timeout", "10", "pip-audit"]
        pins = ["--disable-pip", "--require-hashes", "-r", str(ROOT / "constraints.txt")]
        ask = ["pip_audit", *pins, "--format=json", "--progress-spinner=off"]
        try:
            for command in (install, ask):
                done = subprocess.run(
                    [python, "-m", *command],
                    capture_output=True, text=True, timeout=PATIENCE, check=False,
                )  # fmt: skip
                if done.returncode and not done.stdout:
                    said = done.stderr.strip().rpartition("\n")[2]
                    return not_audited(f"{command[0]} says {said!r}")
        except subprocess.TimeoutExpired:
            return not_audited(f"there was no answer in {PATIENCE} seconds")
    return report(json.loads(done.stdout)["dependencies"])


def report(dependencies: list[dict[str, Any]]) -> int:
    """What pip-audit found, and what it did not look at: that is said, and never counts as well."""
    skipped = [one["name"] for one in dependencies if "skip_reason" in one]
    found = [
        (one["name"], one["version"], known["id"])
        for one in dependencies
        for known in one.get("vulns", [])
    ]
    for name, version, known in found:
        print(f"{name} {version}: {known}")
    looked = len(dependencies) - len(skipped)
    print(
        f"{looked} versions audited, {len(found)} vulnerabilities known, {len(skipped)} unknown to the index."
    )
    if not looked:
        return not_audited("the index that pip-audit asked knows none of them")
    return int(bool(found))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["lowest"]:
            print("\n".join(lowest()))
        case ["audit"]:
            sys.exit(audit())
        case ["audit", folder]:
            sys.exit(audit_offline(Path(folder)))
        case _:
            sys.exit(__doc__)
