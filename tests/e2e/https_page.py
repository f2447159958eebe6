"""A page over https on loopback, as Claude's WebFetch asks for no other, with its own certificate."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOST: Final = "127.0.0.1"


def certificate(file: Path) -> None:
    """Write a new key and its certificate, which is valid for a day."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(HOST))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(made.public_bytes(pem) + private)


@contextlib.asynccontextmanager
async def page(text: str, file: Path) -> AsyncIterator[str]:
    """The address of a page of plain text, whose certificate is in the file."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            body = text.encode()
            head = f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close"
            writer.write(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode() + body)
            await writer.drain()
            writer.close()
            await writer.wait_closed()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    server = await asyncio.start_server(answer, HOST, 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"https://{HOST}:{port}/docs"
