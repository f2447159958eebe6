"""Content of ACP messages: blocks of prompts and answers, and tool output."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from pykoclaw_acp.protocol.limits import Count
from pykoclaw_acp.protocol.wire import Wire


class Annotations(Wire, frozen=True, kw_only=True):
    """What a block says of itself; decoded leniently, as ACP has it."""

    audience: Annotated[list[Literal["assistant", "user"]], Meta(max_length=2)] | None = None
    # shorter than a mark of `long_lines`
    last_modified: Annotated[str, Meta(max_length=32)] | None = None
    priority: float | None = None


class TextContent(Wire, frozen=True, kw_only=True, tag_field="type", tag="text"):
    text: str
    annotations: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class ResourceLink(Wire, frozen=True, kw_only=True, tag_field="type", tag="resource_link"):
    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: Count | None = None
    annotations: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class ImageContent(Wire, frozen=True, kw_only=True, tag_field="type", tag="image"):
    data: str
    mime_type: str
    uri: str | None = None
    annotations: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class AudioContent(Wire, frozen=True, kw_only=True, tag_field="type", tag="audio"):
    data: str
    mime_type: str
    annotations: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class Resource(Wire, frozen=True, kw_only=True):
    """Contents of an embedded resource: `text`, or `blob` as base64."""

    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None


class EmbeddedResource(Wire, frozen=True, kw_only=True, tag_field="type", tag="resource"):
    resource: Resource
    annotations: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


ContentBlock = TextContent | ResourceLink | ImageContent | AudioContent | EmbeddedResource


# --- what tools show


class ShownContent(Wire, frozen=True, kw_only=True, tag_field="type", tag="content"):
    """A content block in a tool's output."""

    content: TextContent | ImageContent


class Terminal(Wire, frozen=True, kw_only=True, tag_field="type", tag="terminal"):
    """Where a client that has terminals shows the output of a command."""

    terminal_id: str


class Diff(Wire, frozen=True, kw_only=True, tag_field="type", tag="diff", omit_defaults=False):
    """A change to a file; `old_text` is None for a new file."""

    path: str
    old_text: str | None
    new_text: str
    meta: dict[str, Any] | msgspec.UnsetType = msgspec.field(name="_meta", default=msgspec.UNSET)


ToolContent = ShownContent | Diff | Terminal
