"""Setting mode, model, effort and fast mode in the CLI."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final, cast

from claude_agent_sdk import ClaudeSDKClient
from claude_agent_sdk.types import PermissionMode

from pykoclaw_acp.channel.choosing import SetConfig, SetMode, SetModel
from pykoclaw_acp.model.choices import Chosen
from pykoclaw_acp.worker import sdk_private

Setting = SetMode | SetModel | SetConfig
# s; the CLI answers in milliseconds, also in the middle of a turn, but reads nothing for up to 30 s
# while it connects to an MCP server again
WAIT: Final = 45.0
WRITTEN: Final = 1.0  # s in which a request is in the CLI's input
MAX_REASON: Final = 300  # characters of what Claude says when it refuses something


async def send(client: ClaudeSDKClient, setting: Setting) -> None:
    """Set it, and wait for the CLI's answer."""
    if isinstance(setting, SetMode):
        await client.set_permission_mode(cast("PermissionMode", setting.mode))
    elif isinstance(setting, SetModel):
        await client.set_model(setting.model)
    else:
        # None would put fast mode back to what the CLI was started with.
        config = setting.config
        settings = {"effortLevel": config.effort, "fastMode": config.fast}
        await sdk_private.apply_settings(client, settings)


async def send_back(client: ClaudeSDKClient, setting: Setting, before: Chosen) -> None:
    """Put it back after a setting that the CLI has not answered: it carries out both, in order, when
    it reads on.
    """
    with contextlib.suppress(Exception):
        async with asyncio.timeout(WRITTEN):
            await send(client, former(setting, before))


def former(setting: Setting, before: Chosen) -> Setting:
    """The setting with which this one is taken back."""
    if isinstance(setting, SetMode):
        return SetMode(epoch=setting.epoch, mode=before.mode)
    if isinstance(setting, SetModel):
        return SetModel(epoch=setting.epoch, model=before.model)
    return SetConfig(epoch=setting.epoch, config=before.config)


def why_not(error: Exception) -> str:
    """Sentence that says why a setting was taken back."""
    if isinstance(error, TimeoutError):
        return f"Claude has not answered for {WAIT:g} s, so this choice was taken back."
    reason = str(error)[:MAX_REASON] or repr(error)[:MAX_REASON]
    return f"Claude refused this choice, so it was taken back: {reason}."
