"""What benchmarks make of what they have measured."""

from __future__ import annotations

from bench.figures import Figures
from bench.turns import FIRST_TEXT, PEER, SDK, SECOND, compare


def test_new_sessions_are_compared_to_the_peer_too() -> None:
    told = {
        who: {FIRST_TEXT: value, SECOND: value, "other, ms": value}
        for who, value in (("ours", 6.0), ("bare", 4.0), ("peer", 5.0))
    }
    figures = Figures()
    compare(told, figures)
    ratios = {key: row.ratio for key, row in figures.rows.items()}
    assert ratios[FIRST_TEXT, PEER] == ratios[SECOND, PEER] == [6 / 5]
    assert ratios[FIRST_TEXT, SDK] == ratios["other, ms", SDK] == [6 / 4]
    assert ("other, ms", PEER) not in ratios
    del told["peer"]
    alone = Figures()
    compare(told, alone)
    assert {baseline for _, baseline in alone.rows} == {SDK}
