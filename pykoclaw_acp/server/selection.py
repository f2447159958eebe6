"""`session/set_mode`, `session/set_model`, `session/set_config_option`."""

from __future__ import annotations

from pykoclaw_acp.errors import InvalidParams, MethodNotFound
from pykoclaw_acp.model.choices import OFF, ON
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
    session = await call.subscriber.opened(params.session_id)
    await session.choosing.choose("modeId", mode=params.mode_id)
    return Empty()


async def set_model(call: Call, params: SetModelParams) -> Empty:
    """Change the model, for clients from before config options."""
    if not call.legacy_models:
        raise MethodNotFound(
            "ACP has removed `session/set_model`: set the option `model` with"
            " `session/set_config_option`, or have PYKOCLAW_LEGACY_MODELS set to on.",
            {"method": "session/set_model"},
        )
    session = await call.subscriber.opened(params.session_id)
    await session.choosing.choose("modelId", model=params.model_id)
    return Empty()


async def set_config_option(call: Call, params: SetConfigOptionParams) -> SetConfigOptionResult:
    """Change an option; the response has all options with their values."""
    session = await call.subscriber.opened(params.session_id)
    value = params.value
    if isinstance(value, bool):
        if params.config_id in (projection.MODE, projection.MODEL):
            raise InvalidParams("`value`: must be the id of one of the option's values.")
        value = ON if value else OFF
    if params.config_id == projection.MODE:
        chosen = await session.choosing.choose("value", mode=value)
    elif params.config_id == projection.MODEL:
        chosen = await session.choosing.choose("value", model=value)
    else:
        chosen = await session.choosing.choose("value", option=(params.config_id, value))
    options = projection.config_options(chosen, booleans=call.client.booleans)
    return SetConfigOptionResult(config_options=options)
