"""Limits of values from outside, checked when they are decoded."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from pykoclaw_acp.link.lines import MAX_NUMBER

MAX_PATH: Final = 4096  # characters; PATH_MAX of Linux, in bytes
MAX_NAME: Final = 256  # characters of an id, or of what a program calls itself
MAX_KEY: Final = 255  # characters of an idempotency key
MAX_WORDS: Final = 20_000  # characters of what a person says when it decides

Count = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
Name = Annotated[str, Meta(max_length=MAX_NAME)]
Path = Annotated[str, Meta(min_length=1, max_length=MAX_PATH)]
Key = Annotated[str, Meta(min_length=1, max_length=MAX_KEY)]
Words = Annotated[str, Meta(max_length=MAX_WORDS)]
Id = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
