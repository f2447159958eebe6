"""Lenient decoding: an invalid field gets its default, as ACP requires for `clientCapabilities` and
`clientInfo`.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

S = TypeVar("S", bound=msgspec.Struct)


def decode(raw: bytes, kind: type[S]) -> S:
    """Decode raw JSON as `kind`; missing fields and fields of a wrong type get their defaults."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = None
    return _build(value, kind)


def _build(value: object, kind: type[S]) -> S:
    known: dict[str, Any] = {}
    if isinstance(value, dict):
        for field in msgspec.structs.fields(kind):
            if field.encode_name not in value:
                continue
            given = value[field.encode_name]
            if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
                known[field.name] = _build(given, field.type)
            else:
                try:
                    known[field.name] = msgspec.convert(given, field.type)
                except msgspec.ValidationError:
                    continue
    return kind(**known)
