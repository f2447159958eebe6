"""The process that reads transcripts: one request after the other on a socket, until its end.

It has little memory, and a low priority once it has worked for long: what a client waits for is short,
as a rule. Nothing of it is needed after an answer: the server ends it when it has been idle, or has a
low priority, and starts another.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Final

import msgspec

from pykoclaw_acp import __version__
from pykoclaw_acp.system import processes
from pykoclaw_acp.system.regular_files import opened
from pykoclaw_acp.transcripts import wire
from pykoclaw_acp.transcripts.reader import TranscriptReader

NICE: Final = 10
SHORT: Final = 0.5  # s of CPU time at the usual priority
MEMORY: Final = 512 * 1024 * 1024  # bytes of addresses: far above what it needs


def main(descriptor: int, version: str) -> None:
    """Answer the requests on this socket; `version`: of the server, empty if it does not say it."""
    signal.signal(signal.SIGPROF, _give_way)
    signal.setitimer(signal.ITIMER_PROF, SHORT)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    processes.set_name("pykoclaw-read")
    with socket.socket(fileno=descriptor) as control, control.makefile("rb") as incoming:
        for line in incoming:
            for answer in answers(wire.requests.decode(line), version):
                control.sendall(msgspec.json.encode(answer) + b"\n")


def _give_way(*_: object) -> None:
    with contextlib.suppress(OSError):
        os.nice(NICE)


def answers(request: wire.ReaderRequest, version: str) -> Iterator[wire.ReaderAnswer]:
    """The answers to a request of a server of this version."""
    if isinstance(request, wire.Scan) and version != __version__:
        # It would not understand all that is said here, and what it takes in is never read again.
        yield wire.UnreadableTranscript(
            f"pykoclaw-acp was replaced by version {__version__} while it was running: restart it"
        )
        return
    try:
        if isinstance(request, wire.Digest):
            from pykoclaw_acp.transcripts.digest import digest

            yield wire.DigestText(digest(request.turns))
            return
        if isinstance(request, wire.Survey | wire.Compare | wire.Examine):
            yield from _surveyed(request)
            return
        with opened(request.path) as descriptor:
            size = os.fstat(descriptor).st_size
            upto = size if request.upto is None else min(size, request.upto)
            yield from TranscriptReader(request, descriptor, upto).pieces()
    except OSError as error:
        yield wire.UnreadableTranscript(str(error))


def _surveyed(request: wire.Survey | wire.Compare | wire.Examine) -> Iterator[wire.ReaderAnswer]:
    from pykoclaw_acp.transcripts import survey  # seldom: an import need not wait for it

    match request:
        case wire.Survey():
            yield survey.survey(request)
        case wire.Compare():
            yield from survey.compare(request)
        case wire.Examine():
            found = survey.examine(request.path, request.helpers, opens=True)
            yield wire.FolderChanges([] if found is None else [found], done=True)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        main(int(sys.argv[1]), "".join(sys.argv[2:]))
