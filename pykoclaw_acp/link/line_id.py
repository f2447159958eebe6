"""The id of a request whose line is not parsed, for the error response. Standard library only.

Clients write the id before the parameters or after them: it is looked for where only short members
stand before it, or after it. Where it cannot be found the answer has the id null, as JSON-RPC says.
"""

from __future__ import annotations

TYPE_CHECKING = False  # a front imports this when it is needed, and `typing` is not
if TYPE_CHECKING:
    from typing import Final

NULL: Final = b"null"
TAIL: Final = 4096  # bytes of a line's end in which the id is looked for

_STRING = rb'"(?:[^"\\\x00-\x1f]|\\.){0,1022}+"'
_MEMBER = rb'"(?:jsonrpc|method)"\s*+:\s*+' + _STRING
# The id is repeated in the answer: it must be JSON itself.
_NUMBER = rb"-?(?:0|[1-9]\d{0,1021}+)"
_TEXT = rb'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4})){0,1022}+"'
_ID = rb'"id"\s*+:\s*+(' + _NUMBER + rb"|" + _TEXT + rb")"


def find(head: bytes | bytearray, tail: bytes | bytearray = b"") -> bytes:
    """The id in a line with this head and, if it is complete, this tail; `null` if it cannot be
    found.
    """
    import re  # here: a client waits for a front that starts

    before, after = (
        rb"(?:" + _MEMBER + rb"\s*+,\s*+){0,2}+",
        rb"\s*+(?:,\s*+" + _MEMBER + rb"\s*+){0,2}+",
    )
    found = re.match(rb"\s*+\{\s*+" + before + _ID + rb"\s*+[,}]", head)
    if found is None and tail:
        found = re.search(rb",\s*+" + before + _ID + after + rb"\}\s*+\Z", tail)
    if found is None:
        return NULL
    message_id = bytes(found[1])
    try:
        message_id.decode()
    except UnicodeDecodeError:
        return NULL
    return message_id
