"""Access for clients that run inside of a session, as PYKOCLAW_NESTED_ACCESS says; none
by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pykoclaw_acp.config.values import NestedAccess
from pykoclaw_acp.errors import NestedCaller
from pykoclaw_acp.protocol.wire import Params
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.dispatch import Method
from pykoclaw_acp.server.methods import METHODS
from pykoclaw_acp.server.origin import Inside

_CLIENT: Final = (
    "It may not use the daemon: no session may read or prompt another one, or answer its permission requests. To allow "
    "clients inside of sessions, set PYKOCLAW_NESTED_ACCESS=clients for the daemon."
)
_OPERATOR: Final = (
    "It may not use the commands of operators: no session may stop or read another one, or answer its permission "
    "requests. Use a terminal of your own. To allow it, set PYKOCLAW_NESTED_ACCESS=all for the daemon."
)


def is_client(access: NestedAccess) -> bool:
    """Whether they may be ACP clients."""
    return access != "none"


def allowed(
    methods: Mapping[str, Method[Call, Any]], inside: Inside, access: NestedAccess
) -> Mapping[str, Method[Call, Any]]:
    """Their dispatch table: methods that they may not call respond with a refusal."""
    if access == "all":
        return methods
    return {
        name: method if name in METHODS and is_client(access) else _refused(name in METHODS, inside)
        for name, method in methods.items()
    }


def _refused(as_client: bool, inside: Inside) -> Method[Call, Any]:
    async def refuse(call: Call, params: Params) -> None:  # noqa: ARG001
        raise NestedCaller(_CLIENT if as_client else _OPERATOR, inside.session)

    return Method(Params, refuse, before_initialize=True)
