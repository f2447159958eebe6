"""Groups of the system that others are in."""

from __future__ import annotations

import grp

import pytest


def shared_with(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """This user is a member of every group."""
    monkeypatch.setattr(
        grp, "getgrgid", lambda gid: grp.struct_group((f"g{gid}", "x", gid, [name]))
    )
