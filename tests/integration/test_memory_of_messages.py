"""A message that cannot be read for lack of memory: it is refused, and the client goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykoclaw_acp.protocol import long_lines, prompt
from tests.integration.rig import rig
from tests.integration.shortages import short_of_memory
from tests.integration.wires import client, new
from tests.integration.wires import prompt as say


@pytest.mark.parametrize(("module", "name"), [(long_lines, "shorten"), (prompt, "restored")])
async def test_message_without_memory_is_refused_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, name: str
) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        with monkeypatch.context() as patched:
            patched.setattr(module, name, short_of_memory)
            answer = await wire.call("session/prompt", **say(session, "x" * 2_000_000))
        assert answer["error"]["code"] == -32012
        assert answer["error"]["data"] == {"errorKind": "out_of_memory", "retryable": True}
        assert "`ulimit -v`" in answer["error"]["message"]
        assert await r.states() == {}
        again = await wire.call("session/prompt", **say(session, "say 1"))
        assert again["result"]["stopReason"] == "end_turn"
