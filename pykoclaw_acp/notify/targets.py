"""The targets of `PYKOCLAW_NOTIFY`: commands, webhooks and conversations, separated by commas."""

from __future__ import annotations

import hashlib
import ipaddress
import shlex
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from pykoclaw_acp.model import deliveries
from pykoclaw_acp.model.conversations import OWN
from pykoclaw_acp.model.notices import DeliveryTarget

CHANNELS: Final = deliveries.CHANNELS - {OWN}
"""Channels of pykoclaw's other programs."""


@dataclass(frozen=True, slots=True)
class CommandTarget:
    """A program with its arguments; it reads the notice on its standard input."""

    arguments: tuple[str, ...]

    @property
    def key(self) -> str:
        """The name of the program in the database."""
        return _key("command", shlex.join(self.arguments))

    @property
    def shown(self) -> str:
        """The program, without its arguments, which may be secret."""
        return shlex.quote(self.arguments[0])


@dataclass(frozen=True, slots=True)
class Webhook:
    """An address that notices are posted to: https, or http on this machine."""

    url: str

    @property
    def key(self) -> str:
        """The name of the address in the database."""
        return _key("webhook", self.url)

    @property
    def shown(self) -> str:
        """The beginning of the address: the rest may be secret."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        port = "" if parts.port is None else f":{parts.port}"
        return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}/…"


Target = CommandTarget | Webhook | DeliveryTarget


def parse(setting: str) -> list[Target]:
    """The targets, in their order. Raises ValueError in words for people, without the value."""
    parts = [part.strip() for part in setting.split(",")]
    return [_target(part) for part in parts if part]


def names(setting: str) -> dict[str, str]:
    """What its programs and webhooks are called, by their keys."""
    return {one.key: one.shown for one in parse(setting) if not isinstance(one, DeliveryTarget)}


def shown(setting: str) -> str:
    """The setting without what may be secret; it has the same targets, by other keys."""
    return ", ".join(
        one.conversation if isinstance(one, DeliveryTarget) else one.shown for one in parse(setting)
    )


def _target(text: str) -> Target:
    if text.startswith(("http://", "https://")):
        _check_url(text)
        return Webhook(text)
    prefix, dash, rest = text.partition("-")
    if dash and rest and prefix in CHANNELS and "/" not in prefix and " " not in text:
        return DeliveryTarget(text, prefix)
    if text.startswith("acp-"):
        raise ValueError("a conversation of an editor cannot be told; name one of another channel")
    arguments = shlex.split(text)
    if not arguments or not arguments[0].startswith("/"):
        raise ValueError(
            "a target is the absolute path of a program, an https:// address, or a conversation such as wa-…"
        )
    return CommandTarget(tuple(arguments))


def _check_url(url: str) -> None:
    if any(one.isspace() or not one.isprintable() for one in url):  # urlsplit drops some of them
        raise ValueError("the address of a webhook has no blanks; commas are between targets")
    parts = urlsplit(url)
    if not parts.hostname or parts.username is not None or parts.password is not None:
        raise ValueError("the address of a webhook needs a host, and may not contain a password")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError("the port of a webhook is a number up to 65535") from None
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError("a webhook on another machine needs https")


def is_loopback(host: str) -> bool:
    """Whether the host is this machine, without asking for its address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _key(kind: str, value: str) -> str:
    return f"{kind}:{hashlib.sha256(value.encode()).hexdigest()[:16]}"
