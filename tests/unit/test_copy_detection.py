"""Whether a database is the instance or a copy: each case of docs/architecture.md."""

from __future__ import annotations

import dataclasses

import pytest

from pykoclaw_acp.link.records import Site
from pykoclaw_acp.pool.whereabouts import Direction
from pykoclaw_acp.server.copy_detection import Evidence, Verdict, judge

THERE = Site("/there", 1, 10, "boot")
MOVED = Site("/here", 1, 10, "boot")  # the same directory
ANEW = Site("/here", 2, 10, "boot")  # another one, though with the same number on its file system
AT_PLACE = Site("/there", 1, 11, "boot")


@pytest.mark.parametrize(
    ("here", "verdict"), [(THERE, "same"), (AT_PLACE, "same"), (MOVED, "moved"), (ANEW, "moved")]
)
def test_without_an_original_it_is_the_instance(here: Site, verdict: Verdict) -> None:
    assert judge(Evidence(THERE, here)) == verdict


def test_existing_original_means_copy_unless_same_directory() -> None:
    assert judge(Evidence(THERE, ANEW, original_is_there=True)) == "copy"
    assert judge(Evidence(THERE, MOVED, original_is_there=True)) == "moved"
    after_a_boot = dataclasses.replace(MOVED, boot_id="another")
    assert judge(Evidence(THERE, after_a_boot, original_is_there=True)) == "copy"


@pytest.mark.parametrize("here", [THERE, AT_PLACE, MOVED, ANEW])
def test_what_another_has_is_not_ours(here: Site) -> None:
    assert judge(Evidence(THERE, here, served=True, workers=["here"])) == "copy"
    assert judge(Evidence(THERE, here, lives_elsewhere=True)) == "copy"
    assert judge(Evidence(THERE, here, workers=["elsewhere"])) == "copy"


@pytest.mark.parametrize("here", [THERE, AT_PLACE, MOVED, ANEW])
def test_a_worker_that_sees_its_directory_here_decides(here: Site) -> None:
    evidence = Evidence(
        THERE, here, ["here", "elsewhere", "unknown"], lives_elsewhere=True, original_is_there=True
    )
    assert judge(evidence) in ("same", "moved")


@pytest.mark.parametrize(
    ("here", "seen", "original", "verdict"),
    [
        (ANEW, "deleted", False, "moved"),
        (ANEW, "deleted", True, "copy"),
        (ANEW, "unknown", False, "copy"),
        (MOVED, "unknown", False, "moved"),
        (AT_PLACE, "unknown", False, "same"),
        (AT_PLACE, "deleted", False, "same"),
    ],
)
def test_undecided_worker_leaves_verdict_to_paths(
    here: Site, seen: Direction, original: bool, verdict: Verdict
) -> None:
    assert judge(Evidence(THERE, here, [seen], original_is_there=original)) == verdict
