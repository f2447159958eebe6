"""docs/comparison.md, as `make comparison` wrote it."""

from __future__ import annotations

import re

from docs.features import FEATURES, OURS, VERDICTS
from tests.unit.documents import table, text

PAGE = "docs/comparison.md"
NAMES = [one.name for one in FEATURES]


def test_each_script_feature_has_row_and_lines() -> None:
    said = [[name, *verdict[:3]] for name, verdict in VERDICTS.items()]
    assert [row[0] for row in said] == NAMES
    assert table(PAGE, "feature") == said
    sections = re.split(r"^## ", text(PAGE), flags=re.MULTILINE)[1:]
    assert [one.partition("\n")[0] for one in sections] == NAMES
    for section in sections:
        assert section.count("\nthe prompt's answer {") >= 2, section[:80]


def test_reason_is_said_where_other_shows_more() -> None:
    for name, verdict in VERDICTS.items():
        assert verdict.more == OURS or verdict.why or verdict.ours == verdict.peer, name
        assert not verdict.why or f"\n* {name}: {verdict.why}.\n" in text(PAGE)
