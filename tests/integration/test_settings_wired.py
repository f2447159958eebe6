"""Settings arrive where they count: the server's parts have the values that it was started with."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.errors import WorkerFailed
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.model.away import AwayPolicy
from pykoclaw_acp.model.lost_context import LostContext
from pykoclaw_acp.model.turns import TurnTimes
from pykoclaw_acp.pool.pool import WorkerPool
from pykoclaw_acp.pool.ports import PoolLimits
from pykoclaw_acp.server import stdio
from pykoclaw_acp.server.app import App
from pykoclaw_acp.sessions.catalogue import ListSettings
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.system.turn_lock import Holder, TurnLock

OF_WORKERS = (
    "model permission_mode setting_sources cli_path umask log_level profile titles brave_api_key"
    " account"
)
OF_TURNS = "cancel_grace permission_timeout rejoin_window away_policy away_timeout lost_context usage_limit"
OF_POOL = (
    "data max_workers idle_timeout worker_start_timeout stall_timeout orphan_grace spool_limit"
    " scheduler"
)
OF_LISTS = "data hide_channels list_transcripts delete_transcripts helper_prompts"


def settings_in(path: Path) -> Settings:
    """None of these values is the default."""
    return Settings(  # type: ignore[call-arg]  # by an alias
        data=path / "data", state=path / "state", socket=path / "run/s",
        cancel_grace=11, permission_timeout=12, rejoin_window=13,
        away_policy=AwayPolicy.PARK, away_timeout=14, turn_lock_timeout=0.2,
        lost_context=LostContext.OFF, usage_limit="wait",
        max_workers=3, idle_timeout=15, worker_start_timeout=16, stall_timeout=17,
        orphan_grace=18, spool_limit=19, scheduler="on",
        hide_channels=("wa",), list_transcripts="off", delete_transcripts="on",
        helper_prompts=("Summarize this message",),
        legacy_models="on", thinking="hide", early_start="off", prune_after=20,
        shutdown_grace=21,
        model="opus", permission_mode="plan", setting_sources=("user",), cli_path=path / "claude",
        umask="027", log_level="warning", profile="pykoclaw", titles="claude",
        PYKOCLAW_BRAVE_API_KEY="key", account="work",
    )  # fmt: skip


def given(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What sessions and the pool are made with from now on."""
    found: list[Any] = []
    for part in (Sessions, WorkerPool):
        monkeypatch.setattr(part, "__init__", _noting(part.__init__, found))
    return found


def _noting(make: Callable[..., None], found: list[Any]) -> Callable[..., None]:
    def made(*values: Any, **named: Any) -> None:
        found.extend(values)
        make(*values, **named)

    return made


async def test_parts_have_the_values_of_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, values = settings_in(tmp_path), given(monkeypatch)
    places = Places(settings.data, settings.state, settings.socket)
    app = await App.start(settings, places, resident=True)
    try:
        for kind, names in (
            (WorkerOptions, OF_WORKERS),
            (TurnTimes, OF_TURNS),
            (PoolLimits, OF_POOL),
            (ListSettings, OF_LISTS),
        ):
            (part,) = (one for one in values if isinstance(one, kind))
            has = {name: getattr(part, name) for name in names.split()}
            expected = {name: getattr(settings, name) for name in names.split()}
            assert has == {
                name: str(one) if isinstance(one, Path) else one for name, one in expected.items()
            }
            default = Settings()
            assert [name for name in has if expected[name] == getattr(default, name)] == []
        assert app.sessions.showing.legacy_models is True
        assert app.sessions.showing.thoughts is False
        assert app.sessions.early is None
        assert app.scheduler is not None
        await refuses_soon(app, settings)
    finally:
        await app.detach()


async def refuses_soon(app: App, settings: Settings) -> None:
    """A prompt waits for another program's turn as long as the setting says."""
    locks = app.sessions.locks
    assert locks is not None
    other = TurnLock.take(str(settings.data), "chat", "pykoclaw")
    assert not isinstance(other, Holder)
    try:
        with pytest.raises(WorkerFailed, match=r"within 0\.2 s"):
            await asyncio.wait_for(locks.acquire("chat"), 60)
    finally:
        other.release()


async def test_stdio_stops_within_its_shutdown_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graces = []
    stop = App.stop

    async def note(app: App, grace: float) -> None:
        graces.append(grace)
        await stop(app, 1)

    monkeypatch.setattr(App, "stop", note)
    (source, given), (shown, sink) = os.pipe(), os.pipe()
    os.close(given)
    try:
        await stdio.serve(settings_in(tmp_path), source, sink, None)
    finally:
        os.close(shown)
    assert graces == [21 - stdio.CALLS_GRACE - stdio.ANSWERS_GRACE]
