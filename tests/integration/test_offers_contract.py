"""Contract of `sessions.ports.OfferStore`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pykoclaw_acp.model.choices import Command, Configuration, Model, Offer
from pykoclaw_acp.store.offers import KEPT
from tests.integration.journals import BOTH, Subject, subject

HERE = Configuration()
NARROWER = Configuration(setting_sources=("user",))
WORK = Configuration("work")
OPUS, SONNET = (Model("opus", "Opus"),), (Model("sonnet", "Sonnet", "The fast one."),)


@pytest.fixture(params=BOTH)
async def s(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as made:
        yield made


async def test_before_any_worker_nothing_is_offered(s: Subject) -> None:
    assert await s.journal.offer("/work", HERE) is None


async def test_the_newest_offer_of_a_directory_counts(s: Subject) -> None:
    offer = Offer((Command("init", "Begin", "what"), Command("review")), SONNET)
    await s.journal.keep_offer("/work", Offer(models=OPUS), HERE)
    await s.journal.keep_offer("/work", offer, HERE)
    assert await s.journal.offer("/work", HERE) == offer


async def test_unknown_directory_has_models_of_newest_offer(s: Subject) -> None:
    await s.journal.keep_offer("/a", Offer((Command("a", "A (project)"),), OPUS), HERE)
    await s.journal.keep_offer("/b", Offer((Command("b", "B (project)"),), SONNET), HERE)
    assert await s.journal.offer("/c", HERE) == Offer(models=SONNET)
    await s.journal.keep_offer("/a", Offer((Command("a", "A (project)"),), OPUS), HERE)
    assert await s.journal.offer("/c", HERE) == Offer(models=OPUS)
    assert await s.journal.offer("/b", HERE) == Offer((Command("b", "B (project)"),), SONNET)


async def test_offers_of_newest_directories_are_kept(s: Subject) -> None:
    """Directories of a task each, as worktrees are, come and go for months."""
    own = Offer((Command("own", "Own (project)"),), OPUS)
    for number in range(KEPT + 2):
        await s.journal.keep_offer(f"/{number}", own, HERE)
    assert await s.journal.offer("/2", HERE) == own
    assert await s.journal.offer("/1", HERE) == Offer(models=OPUS)


EVERYWHERE = (
    Command("compact", "Free up context"),
    Command("mine", "Mine (project) of all (user)"),
    Command("sub:mine", "Mine (user)"),
)
LOCAL = (
    Command("theirs", "Mine (user) (project)"),
    Command("own", "Mine (local)"),
    Command("tools:lint", "Lint"),
    Command("mcp__server__prompt", "A prompt"),
    Command("lint", "Lint (plugin:tools@market)"),
)


async def test_unknown_directory_has_the_commands_that_are_everywhere(s: Subject) -> None:
    await s.journal.keep_offer("/a", Offer((*EVERYWHERE, *LOCAL), OPUS), HERE)
    await s.journal.keep_offer("/b", Offer((Command("other"),), SONNET), NARROWER)
    assert await s.journal.offer("/c", HERE) == Offer(EVERYWHERE, OPUS)
    assert await s.journal.offer("/c", Configuration(cli_path="/cli")) == Offer((), SONNET)
    assert await s.journal.offer("/a", HERE) == Offer((*EVERYWHERE, *LOCAL), OPUS)
    await s.journal.keep_offer("/c", Offer(LOCAL, OPUS), HERE)
    assert await s.journal.offer("/c", HERE) == Offer(LOCAL, OPUS)


async def test_accounts_in_one_directory_have_own_offers(s: Subject) -> None:
    mine = Offer((Command("mine", "Mine (user)"), Command("lint", "Lint (project)")), OPUS)
    await s.journal.keep_offer("/a", mine, HERE)
    assert await s.journal.offer("/a", WORK) is None
    await s.journal.keep_offer("/b", Offer(EVERYWHERE, SONNET), WORK)
    assert await s.journal.offer("/a", WORK) == Offer(EVERYWHERE, SONNET)
    await s.journal.keep_offer("/a", Offer((), SONNET), WORK)
    await s.journal.keep_offer("/a", mine, HERE)
    assert await s.journal.offer("/a", WORK) == Offer((), SONNET)


async def test_services_of_one_account_share_no_offer(s: Subject) -> None:
    gateway = Configuration(service="5e41")
    await s.journal.keep_offer("/a", Offer(EVERYWHERE, OPUS), HERE)
    assert await s.journal.offer("/a", gateway) is None
    await s.journal.keep_offer("/a", Offer((), SONNET), gateway)
    assert await s.journal.offer("/a", HERE) == Offer(EVERYWHERE, OPUS)
    narrower = Configuration(setting_sources=("user",), service="5e41")
    assert await s.journal.offer("/b", narrower) == Offer((), SONNET)


async def test_fewer_setting_sources_replace_no_offer(s: Subject) -> None:
    await s.journal.keep_offer("/a", Offer(LOCAL, OPUS), HERE)
    assert await s.journal.offer("/a", NARROWER) == Offer((), OPUS)
    await s.journal.keep_offer("/a", Offer((), OPUS), NARROWER)
    assert await s.journal.offer("/a", HERE) == Offer(LOCAL, OPUS)
