"""Keys of ours in `_meta`: an unknown one is refused, so that nothing of what a client asks for is
ignored silently. Keys of others are left alone, as ACP wants it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pykoclaw_acp.errors import InvalidParams

OWN: Final = "pykoclaw.dev/"


def check(params: object, known: Collection[str]) -> None:
    """Raises InvalidParams, which names them, for keys of ours that are not known."""
    meta = getattr(params, "meta", None) or {}
    unknown = [key for key in meta if key.startswith(OWN) and key not in known]
    if unknown:
        names = ", ".join(f"`{key[:60]}`" for key in unknown[:10])
        allowed = ", ".join(f"`{key}`" for key in sorted(known)) or "none"
        raise InvalidParams(
            f"`_meta`: unknown: {names}. Unknown keys that begin with `{OWN}` are refused, and nothing was done."
            f" Known: {allowed}."
        )
