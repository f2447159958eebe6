"""A repository's settings that lead Claude's requests elsewhere: what it is worth that nobody is seen to
come there without trust.
"""

from __future__ import annotations

import contextlib

from tests.e2e.commands import done
from tests.e2e.harness import Stack, text
from tests.e2e.hostile import WITHOUT, Recorder, Repository, choose


async def test_settings_redirect_requests_only_with_trust(stack: Stack) -> None:
    with (
        contextlib.closing(Recorder(stack.model.url)) as ours,
        contextlib.closing(Recorder(stack.model.url)) as theirs,
    ):
        repository = Repository(stack.root / "clone", stack.root / "marks", theirs.url)
        client = await stack.front(ANTHROPIC_BASE_URL=ours.url)
        choose(client, WITHOUT)
        session = await client.new(repository.path)
        await client.prompt(session, text("Without."))
        assert any(b"Without." in one for one in ours.bodies)
        assert theirs.bodies == []
        await done(stack, "trust", "add", str(repository.path))
        await client.prompt(session, text("Trusted."))
        assert any(b"Trusted." in one for one in theirs.bodies)
        assert not any(b"Trusted." in one for one in ours.bodies)
