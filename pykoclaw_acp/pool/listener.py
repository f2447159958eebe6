"""Who hears what workers say: the sessions, as the pool sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pykoclaw_acp.channel.frames import Numbered, Ready
from pykoclaw_acp.model.choices import Offer


class WorkerListener(Protocol):
    """Who gets the workers' frames. `frames` returns after the commit; what it raises ends the worker.

    `adopted`: a worker of another daemon answers, `foreign` if it may get no prompt. `make_room`: this session waits
    for a worker, and all are busy: another one should give up its own.
    """

    def ready(self, session_id: str, offer: Offer) -> None: ...
    async def adopted(self, session_id: str, ready: Ready, *, foreign: bool) -> None: ...
    async def frames(self, session_id: str, epoch: int, frames: Sequence[Numbered]) -> None: ...
    async def lost(self, session_id: str, epoch: int, kind: str, message: str) -> None: ...
    def make_room(self, session_id: str) -> None: ...
