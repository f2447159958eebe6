"""Contract of `sessions.ports.OfferStore`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pykoclaw_acp.model.choices import Command, Model, Offer
from tests.integration.journals import BOTH, Subject, subject

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
