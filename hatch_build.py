"""Makes the README fit for the package page, where a link into the repository leads nowhere.

Links below `project.urls.Source` become absolute. Without such a URL, which a repository that is
not public has not, they become plain text, and pictures their descriptions.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+://|#)([^)]+)\)")


class ReadmeHook(MetadataHookInterface):
    """Called by hatchling for each build."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the readme."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source")
        metadata["readme"] = {"content-type": "text/markdown", "text": packaged(text, source)}


def packaged(readme: str, source: str | None) -> str:
    """The README with links that work anywhere; `source` is the URL under which the files can be
    seen, if any.
    """

    def link(found: re.Match[str]) -> str:
        picture, words, path = found.groups()
        if source is None:
            return f"*{words}*" if picture else words
        return f"{picture}[{words}]({source.rstrip('/')}/{path}{'?raw=true' if picture else ''})"

    return _LINK.sub(link, readme)
