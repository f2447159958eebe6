"""What was found in a session's directories: plain data."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from pykoclaw_acp.model.permissions import Workspace
from pykoclaw_acp.trust.below import Below

Stamp = tuple[int, int, int, int, int, int]  # device, inode, mode, size, mtime and ctime (ns)


@dataclass(frozen=True, slots=True)
class Content:
    """The places that hold something that acts, and all paths that were looked at, as they were
    (None: not there).

    `below`: by directory, what was found below it. `restrictions`: rules of the session's directory
    that forbid calls (`deny`), or make Claude ask about them (`ask`). `resolved`: by path of a
    directory as it was given, where symbolic links led from there.
    """

    acting: tuple[Workspace, ...] = ()
    stamps: dict[str, Stamp | None] = field(default_factory=dict)
    below: dict[str, Below] = field(default_factory=dict)
    resolved: dict[str, str] = field(default_factory=dict)
    restrictions: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Tells these places with this content from all others; empty if nothing acts."""
        if not self.acting:
            return ""
        said = "\n".join(f"{one.path}\0{one.content}" for one in self.acting)
        return hashlib.sha256(said.encode()).hexdigest()
