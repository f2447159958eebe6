"""What `.ci/run` demands of the machine, with stubs in the place of make and Node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / ".ci/run"
INSTALLED = "node_modules/.package-lock.json"
# `make node` installs the clients in $INSTALLABLE; a target fails where a file of its name is.
MAKE = f"""#!/bin/sh
echo "make $* PYKOCLAW_TEST_NODE=$PYKOCLAW_TEST_NODE"
case "$1" in
  node) for one in $INSTALLABLE; do mkdir -p tests/e2e/$one/node_modules; : > tests/e2e/$one/{INSTALLED}; done ;;
  *) [ ! -e $1 ] || exit 7 ;;
esac
"""


def run(
    root: Path, *programs: str, clients: str = "", failing: str = "", shallow: bool = False
) -> tuple[int, list[str]]:
    """Exit status and lines of `.ci/run` on a machine with these programs, where these clients can be
    installed, and this target of make fails; `shallow`: without the commits of versions before.
    """
    stubs = root / "stubs"
    stubs.mkdir()
    git = f"#!/bin/sh\nexit {int(shallow)}\n"
    for name, body in {"make": MAKE, "git": git, **dict.fromkeys(programs, "#!/bin/sh\n")}.items():
        (stubs / name).write_text(body)
        (stubs / name).chmod(0o755)
    for name in ("sh", "dirname", "mkdir"):
        found = shutil.which(name)
        assert found is not None
        (stubs / name).symlink_to(found)
    (root / ".ci").mkdir()
    shutil.copy(RUN, root / ".ci/run")
    (root / "tests/faults").mkdir(parents=True)
    (root / "tests/faults/versions_before").write_text("1a2b3c4 a release\n5d6e7f8 another\n")
    if failing:
        (root / failing).touch()
    elsewhere = root / "elsewhere"  # where CDPATH would lead
    (elsewhere / root.name / ".ci").mkdir(parents=True)
    environment = {"PATH": str(stubs), "PYKOCLAW_TEST_NODE": "", "INSTALLABLE": clients}
    done = subprocess.run(
        [f"{root.name}/.ci/run"],
        check=False,
        env={**environment, "CDPATH": str(elsewhere)},
        cwd=root.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize("failing", ["", "test", "test-node"])
def test_tests_on_node_run_where_it_is(tmp_path: Path, failing: str) -> None:
    status, said = run(tmp_path, "node", "npm", clients="typescript acpx", failing=failing)
    assert status == (7 if failing else 0)
    assert said[-2:] == ["make test PYKOCLAW_TEST_NODE=1", "make test-node PYKOCLAW_TEST_NODE=1"]


@pytest.mark.parametrize("failing", ["", "test"])
@pytest.mark.parametrize(
    ("programs", "clients", "reason"),
    [
        ((), "", "there is no Node with npm here"),
        (("node",), "", "there is no Node with npm here"),
        (("node", "npm"), "", "clients on Node cannot be installed"),
        (("node", "npm"), "typescript", "clients on Node cannot be installed"),
        (("node", "npm"), "acpx", "clients on Node cannot be installed"),
    ],
)
def test_where_they_cannot_run_the_end_says_so(
    tmp_path: Path, programs: tuple[str, ...], clients: str, reason: str, failing: str
) -> None:
    status, said = run(tmp_path, *programs, clients=clients, failing=failing)
    assert (status, said[-2]) == (7 if failing else 0, "make test PYKOCLAW_TEST_NODE=")
    assert said[-1].startswith("NOT TESTED HERE: the clients on Node")
    assert reason in said[-1]


def test_upgrades_without_old_versions_are_named(tmp_path: Path) -> None:
    status, said = run(tmp_path, "node", "npm", clients="typescript acpx", shallow=True)
    assert status == 0
    assert said[-1].startswith("NOT TESTED HERE: upgrades of versions before")
    assert said[-1].endswith("no commit 1a2b3c4 5d6e7f8.")
