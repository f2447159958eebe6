"""Order of the demo's scenes."""

from __future__ import annotations

from typing import Final

from pykoclaw_acp.demo import killing, talking
from pykoclaw_acp.demo.stage import Stage
from pykoclaw_acp.scripted_model.process import ScriptedModel

SCENES: Final = (
    talking.start,
    talking.talk,
    killing.kill_daemon,
    killing.kill_editor,
    killing.kill_everything,
    killing.load_again,
    talking.remember,
    talking.stop,
    talking.leave,
)


async def play(stage: Stage, model: ScriptedModel) -> None:
    """Play all scenes. No process is left when it raises."""
    stage.model = model
    try:
        for scene in SCENES:
            await scene(stage)
    finally:
        await stage.clear()
