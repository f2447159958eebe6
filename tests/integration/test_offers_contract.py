"""Contract of `sessions.ports.OfferStore`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pykoclaw_acp.model.choices import Command, Model, Offer
from pykoclaw_acp.store.offers import KEPT
from tests.integration.journals import BOTH, Subject, subject

HERE = "one configuration"
OPUS, SONNET = (Model("opus", "Opus"),), (Model("sonnet", "Sonnet", "The fast one."),)


@pytest.fixture(params=BOTH)
async def s(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as made:
        yield made


async def test_before_any_worker_nothing_is_offered(s: Subject) -> None:
    assert await s.journal.offer("/work") is None


async def test_the_newest_offer_of_a_directory_counts(s: Subject) -> None:
    offer = Offer((Command("init", "Begin", "what"), Command("review")), SONNET)
    await s.journal.keep_offer("/work", Offer(models=OPUS))
    await s.journal.keep_offer("/work", offer)
    assert await s.journal.offer("/work") == offer


async def test_unknown_directory_has_models_of_newest_offer(s: Subject) -> None:
    await s.journal.keep_offer("/a", Offer((Command("a"),), OPUS))
    await s.journal.keep_offer("/b", Offer((Command("b"),), SONNET))
    assert await s.journal.offer("/c") == Offer(models=SONNET)
    await s.journal.keep_offer("/a", Offer((Command("a"),), OPUS))
    assert await s.journal.offer("/c") == Offer(models=OPUS)
    assert await s.journal.offer("/b") == Offer((Command("b"),), SONNET)


async def test_offers_of_newest_directories_are_kept(s: Subject) -> None:
    """Directories of a task each, as worktrees are, come and go for months."""
    own = Offer((Command("own"),), OPUS)
    for number in range(KEPT + 2):
        await s.journal.keep_offer(f"/{number}", own)
    assert await s.journal.offer("/2") == own
    assert await s.journal.offer("/1") == Offer(models=OPUS)


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
    await s.journal.keep_offer("/b", Offer((Command("other"),), SONNET), "another")
    assert await s.journal.offer("/c", HERE) == Offer(EVERYWHERE, OPUS)
    assert await s.journal.offer("/c", "a third") == Offer((), SONNET)
    assert await s.journal.offer("/a", HERE) == Offer((*EVERYWHERE, *LOCAL), OPUS)
    await s.journal.keep_offer("/c", Offer(LOCAL, OPUS), HERE)
    assert await s.journal.offer("/c", HERE) == Offer(LOCAL, OPUS)


async def test_other_account_lacks_directorys_commands(s: Subject) -> None:
    await s.journal.keep_offer("/a", Offer((Command("mine", "Mine (user)"),), OPUS), HERE)
    assert await s.journal.offer("/a", "another") == Offer((), OPUS)
    await s.journal.keep_offer("/b", Offer(EVERYWHERE, SONNET), "another")
    assert await s.journal.offer("/a", "another") == Offer(EVERYWHERE, OPUS)
