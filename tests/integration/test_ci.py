"""What `.ci/run` demands of the machine, with stubs in the place of make and Node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / ".ci/run"
SDK = "tests/e2e/typescript/node_modules"
# `make node` installs the SDK, or says that it cannot; `make test` fails where a status is left.
MAKE = f"""#!/bin/sh
echo "make $* PYKOCLAW_TEST_NODE=$PYKOCLAW_TEST_NODE"
case "$1" in
  node) [ ! -e registry ] || {{ mkdir -p {SDK}; touch {SDK}/.package-lock.json; }} ;;
  test) [ ! -e failing ] || exit 7 ;;
esac
"""


def run(root: Path, *programs: str, files: tuple[str, ...] = ()) -> tuple[int, list[str]]:
    """Exit status and lines of `.ci/run` in a repository with these files, on a machine with these
    programs.
    """
    stubs = root / "stubs"
    stubs.mkdir()
    for name, body in {"make": MAKE, **dict.fromkeys(programs, "#!/bin/sh\n")}.items():
        (stubs / name).write_text(body)
        (stubs / name).chmod(0o755)
    for name in ("sh", "dirname", "mkdir", "touch"):
        found = shutil.which(name)
        assert found is not None
        (stubs / name).symlink_to(found)
    (root / ".ci").mkdir()
    shutil.copy(RUN, root / ".ci/run")
    for name in files:
        (root / name).touch()
    environment = {"PATH": str(stubs), "PYKOCLAW_TEST_NODE": ""}
    done = subprocess.run(
        [root / ".ci/run"],
        check=False,
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize("failing", [False, True])
def test_tests_on_node_are_demanded_where_it_is(tmp_path: Path, failing: bool) -> None:
    files = ("registry", *(["failing"] if failing else []))
    status, said = run(tmp_path, "node", "npm", files=files)
    assert (status, said[-1]) == (7 if failing else 0, "make test PYKOCLAW_TEST_NODE=1")


@pytest.mark.parametrize(
    ("programs", "reason"),
    [
        ((), "There is no Node with npm here"),
        (("node",), "There is no Node with npm here"),
        (("node", "npm"), "The TypeScript client cannot be installed"),
    ],
)
def test_where_they_cannot_run_the_reason_is_said(
    tmp_path: Path, programs: tuple[str, ...], reason: str
) -> None:
    status, said = run(tmp_path, *programs)
    assert (status, said[-1]) == (0, "make test PYKOCLAW_TEST_NODE=")
    assert said[-2].startswith(reason)
    assert said[-2].endswith("skipped.")
