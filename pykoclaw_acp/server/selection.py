"""`session/set_mode`, `session/set_model`, `session/set_config_option`."""

from __future__ import annotations

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.protocol import projection
from pykoclaw_acp.protocol.messages import (
    Empty,
    SetConfigOptionParams,
    SetConfigOptionResult,
    SetModelParams,
    SetModeParams,
)
from pykoclaw_acp.server.call import Call


async def set_mode(call: Call, params: SetModeParams) -> Empty:
    """Change the permission mode, also in the middle of a turn."""
    session = await call.sessions.get_open(params.session_id)
    await session.choosing.choose("modeId", mode=params.mode_id)
    return Empty()


async def set_model(call: Call, params: SetModelParams) -> Empty:
    """Change the model."""
    session = await call.sessions.get_open(params.session_id)
    await session.choosing.choose("modelId", model=params.model_id)
    return Empty()


async def set_config_option(call: Call, params: SetConfigOptionParams) -> SetConfigOptionResult:
    """Change either; the response has all options with their values."""
    session = await call.sessions.get_open(params.session_id)
    if not isinstance(params.value, str):
        raise InvalidParams("`value`: must be the id of one of the option's values.")
    if params.config_id == projection.MODE:
        chosen = await session.choosing.choose("value", mode=params.value)
    elif params.config_id == projection.MODEL:
        chosen = await session.choosing.choose("value", model=params.value)
    else:
        allowed = [projection.MODE, projection.MODEL]
        raise InvalidParams(
            f"`configId`: must be one of {', '.join(allowed)}.", {"allowed": allowed}
        )
    return SetConfigOptionResult(config_options=projection.config_options(chosen))
