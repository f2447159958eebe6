"""Frames by which the daemon changes what Claude runs with; it sends them at any time."""

from __future__ import annotations

from msgspec.structs import replace

from pykoclaw_acp.channel.frame import Frame
from pykoclaw_acp.model.choices import Chosen, Config


class SetMode(Frame, frozen=True, kw_only=True, tag="set_mode"):
    """Change the permission mode, also in the middle of a turn.

    `before_plan`: the mode before, if this one is `plan`: of several changes the worker is told the
    last. None: the worker finds it by itself.
    """

    mode: str
    before_plan: str | None = None


class SetModel(Frame, frozen=True, kw_only=True, tag="set_model"):
    """Change the model, from its next request on."""

    model: str


class SetConfig(Frame, frozen=True, kw_only=True, tag="set_config"):
    """Change effort and fast mode, from the next turn on. A worker of a version before this frame skips it."""

    config: Config


def chosen_with(chosen: Chosen, frame: SetMode | SetModel | SetConfig) -> Chosen:
    """What is chosen once the frame is carried out."""
    if isinstance(frame, SetMode):
        return replace(chosen, mode=frame.mode)
    if isinstance(frame, SetModel):
        return replace(chosen, model=frame.model)
    return replace(chosen, config=frame.config)
