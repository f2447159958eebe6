"""A prompt's content blocks as the Messages API takes them, through the CLI's input.

Measured with CLI 2.1.327: of several blocks the last text is the one that may be a slash command;
images are made smaller by the CLI, which names a copy of each in a text of its own; documents and
blocks that it does not know reach the API as they are.
"""

from __future__ import annotations

import binascii
import codecs
import contextlib
import re
from collections.abc import AsyncIterator, Iterable
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pykoclaw_acp.model import images
from pykoclaw_acp.model.blobs import amount
from pykoclaw_acp.model.links import link
from pykoclaw_acp.model.prompt_text import LINK, command_at, without_tag

PDF: Final = "application/pdf"
_PDF_HEAD: Final = b"%PDF-"
_KIND_HEAD: Final = 64  # characters of base64 in which a file shows its kind
_TEXTS: Final = frozenset(
    (
        "application/json",
        "application/xml",
        "application/javascript",
        "application/yaml",
        "application/toml",
    )
)
UTF_8: Final = "utf-8"
_NO_CHARSETS: Final = frozenset(
    ("utf-7", "unicode-escape", "raw-unicode-escape", "punycode", "idna", "undefined")
)
_CHARSET: Final = re.compile(r";\s*charset\s*=\s*\"?([^\";\s]+)")
_MARKS: Final = (  # the longer ones first
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_NOT_IN_ATTRIBUTES: Final = str.maketrans({one: f"%{ord(one):02X}" for one in '"<>\r\n'})


async def messages(
    content: Iterable[dict[str, Any]], message_id: str
) -> AsyncIterator[dict[str, Any]]:
    """The one message of a prompt, as the SDK streams it to the CLI, which repeats its id."""
    yield {
        "type": "user",
        "message": {"role": "user", "content": blocks(content)},
        "parent_tool_use_id": None,
        "uuid": message_id,
    }


def blocks(content: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks in their order, but the contents of embedded texts before a slash command, and
    else at the end.
    """
    shown: list[dict[str, Any]] = []
    contexts: list[dict[str, Any]] = []
    for block in content:
        match block.get("type"):
            case "text":
                shown.append(_text(block["text"]))
            case "image":
                shown.append(_image(block["data"], block["mimeType"]))
            case "resource":
                for made, is_context in _resource(block):
                    (contexts if is_context else shown).append(made)
            case _:
                shown.append(_text(_link(block["uri"], block["name"])))
    return _command_last(shown, contexts)


def _command_last(
    shown: list[dict[str, Any]], contexts: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    if (at := command_at(shown)) is None:
        return [*shown, *contexts]
    return [*shown[:at], *shown[at + 1 :], *contexts, shown[at]]


def _resource(block: dict[str, Any]) -> Iterable[tuple[dict[str, Any], bool]]:
    """The blocks of an embedded resource, each with whether it is the content of a text."""
    uri, mime_type = str(block["uri"]), str(block.get("mimeType") or "").lower()
    declared = mime_type.partition(";")[0].strip()
    named = _text(_link(uri, _name(uri)))
    if "text" in block and declared in (*images.KINDS, PDF):
        # A client that reads every file as text, as Toad does, has damaged it
        return [(named, False)]
    if "text" in block:
        return [(named, False), (_context(uri, block["text"]), True)]
    data = block["blob"]
    head = binascii.a2b_base64(data[:_KIND_HEAD])
    if images.kind(head) is not None:
        return [(named, False), (_image(data, declared), False)]
    if head.startswith(_PDF_HEAD):
        source = {"type": "base64", "media_type": PDF, "data": data}
        return [(named, False), ({"type": "document", "source": source}, False)]
    content = binascii.a2b_base64(data)
    if declared.startswith("text/") or declared in _TEXTS:
        text, whole = _decoded(content, mime_type)
        if not whole:
            named = _text(
                f"{named['text']} (it could not be decoded; what is lost is shown as \ufffd)"
            )
        return [(named, False), (_context(uri, text), True)]
    kind = declared or "an unknown type"
    said = (
        f"{named['text']} ({amount(len(content))} of {kind}; this content cannot be shown to you)"
    )
    return [(_text(said), False)]


def _decoded(content: bytes, mime_type: str) -> tuple[str, bool]:
    """The text, and whether all of it could be decoded: as its byte order mark or the declared charset
    says, else as UTF-8.
    """
    marked = (name for mark, name in _MARKS if content.startswith(mark))
    declared = next(marked, _charset(mime_type))
    for encoding in (declared, UTF_8):
        with contextlib.suppress(ValueError):
            return content.decode(encoding), True
    return content.decode(declared, errors="replace"), False


def _charset(mime_type: str) -> str:
    """The declared charset, if there is such a one. Of Python's codecs some are none: they decode what
    was not text, or slowly.
    """
    if (found := _CHARSET.search(mime_type)) is not None:
        with contextlib.suppress(LookupError, ValueError):
            name = codecs.lookup(found[1]).name
            bytes(4).decode(name)  # LookupError for what makes no text of bytes
            return UTF_8 if name.replace("_", "-") in _NO_CHARSETS else name
    return UTF_8


def _image(data: str, declared: str) -> dict[str, Any]:
    """The API refuses an image whose type is not the declared one, so its own counts."""
    kind = images.kind(binascii.a2b_base64(data[:_KIND_HEAD])) or declared
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _context(uri: str, text: str) -> dict[str, Any]:
    ref = uri.translate(_NOT_IN_ATTRIBUTES)
    return _text(f'\n<context ref="{ref}">\n{without_tag(text, "context")}\n</context>')


def _link(uri: str, name: str) -> str:
    """A link in Markdown, which Claude can follow with its tools."""
    return link(name, uri, LINK)


def _name(uri: str) -> str:
    try:
        path = urlsplit(uri).path
    except ValueError:
        return uri
    return unquote(PurePosixPath(path).name) or uri
