"""worker.forkserver, for a daemon that runs since before modules moved to layers: its launch
requests are flat.
"""

from __future__ import annotations

import msgspec

from pykoclaw_acp.worker import forkserver

__all__ = ["main"]


def nested(line: bytes) -> bytes:
    """The launch request in today's form."""
    fields = msgspec.json.decode(line)
    return msgspec.json.encode({"spec": {**fields, "options": fields}, "files": fields})


def main() -> None:
    """Serve such a daemon."""
    forkserver.main(nested)


if __name__ == "__main__":
    main()
