"""`session/set_mode`, `set_model`, `set_config_option`; and what an opened session says that it offers."""

from __future__ import annotations

import asyncio

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.protocol import projection
from pykoclaw_acp.protocol.messages import (
    Empty,
    SessionState,
    SetConfigOptionParams,
    SetConfigOptionResult,
    SetModelParams,
    SetModeParams,
)
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.sessions.session import Session


async def set_mode(call: Call, params: SetModeParams) -> Empty:
    """The permission mode, from now on, also in the middle of a turn."""
    session = await call.sessions.get_open(params.session_id)
    await session.choosing.choose("modeId", mode=params.mode_id)
    return Empty()


async def set_model(call: Call, params: SetModelParams) -> Empty:
    """The model."""
    session = await call.sessions.get_open(params.session_id)
    await session.choosing.choose("modelId", model=params.model_id)
    return Empty()


async def set_config_option(call: Call, params: SetConfigOptionParams) -> SetConfigOptionResult:
    """Either of the two; the answer has all options with their values."""
    session = await call.sessions.get_open(params.session_id)
    if not isinstance(params.value, str):
        raise InvalidParams("`value`: must be the id of one of the option's values.")
    if params.config_id == projection.MODE:
        chosen = await session.choosing.choose("value", mode=params.value)
    elif params.config_id == projection.MODEL:
        chosen = await session.choosing.choose("value", model=params.value)
    else:
        allowed = [projection.MODE, projection.MODEL]
        raise InvalidParams(f"`configId`: must be one of {', '.join(allowed)}.", {"allowed": allowed})
    return SetConfigOptionResult(config_options=projection.config_options(chosen))


async def opened(call: Call, session: Session, session_id: str) -> SessionState:
    """What new, load and resume answer; the slash commands follow the answer."""
    call.follow_ups.append(lambda: _show_commands(call, session, session_id))
    return projection.state(await session.choosing.selection(), legacy=call.connection.traits.legacy_choices)


async def _show_commands(call: Call, session: Session, session_id: str) -> None:
    await asyncio.sleep(call.connection.traits.commands_pause)
    commands = await session.choosing.commands()
    if commands and call.connection.follows(session_id):
        await call.connection.offer(session_id, commands)
