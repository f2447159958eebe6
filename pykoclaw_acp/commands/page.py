"""A session's history as a web page: one file, which needs no network and runs no script.

What people, models and tools said is escaped everywhere; the page's own policy allows it nothing but
its style and images that it holds itself.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

from pykoclaw_acp.commands import changes, prose
from pykoclaw_acp.commands.document import (
    CLAUDE,
    OURS,
    RESULTS,
    TASKS,
    THINKING,
    ShownCall,
    ShownMessage,
    ShownPlan,
    about,
    fields,
    headed,
    items,
)
from pykoclaw_acp.commands.markdown import BASE64, beside_title, block_text, output, unquoted
from pykoclaw_acp.commands.prose import safe
from pykoclaw_acp.commands.show import one_line
from pykoclaw_acp.model import images

_STYLE: Final = """
body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:0 auto;padding:1rem;color:#1c1c1e;background:#fff}
header{border-bottom:1px solid #ccc;margin-bottom:1rem}h1{font-size:1.4rem;margin:.2rem 0}
h2{font-size:1rem;margin:1.6rem 0 .4rem}.small,summary{color:#5a5a60;font-size:.9rem}
.text{white-space:pre-wrap;overflow-wrap:anywhere}.you{background:#eef4ff;border-radius:.5rem;padding:.6rem .8rem}
.note{border-left:3px solid #c90;padding-left:.8rem;color:#5a5a60}.failed{color:#a11}
pre{background:#f5f5f7;border-radius:.4rem;padding:.6rem;overflow:auto;max-height:40rem;margin:.4rem 0}
code{font:.9em ui-monospace,monospace}.add{color:#06682b}.del{color:#a11}img{max-width:100%}
blockquote{margin:.2rem 0;border-left:3px solid #ccc;padding-left:.8rem}
table{border-collapse:collapse;white-space:normal}
td,th{border:1px solid #ccc;padding:.2rem .5rem;text-align:left}.text ul,.text ol{margin:.2rem 0;white-space:normal}
.tool{margin:.3rem 0}ul.plan{list-style:none;padding:0}
@media(prefers-color-scheme:dark){body{color:#e6e6e8;background:#18181a}.you{background:#22304a}
pre{background:#242427}.add{color:#6c9}.del,.failed{color:#f88}.small,summary,.note{color:#a5a5ad}}
"""
_MARKS: Final = {"completed": "☑", "in_progress": "▶"}


def page(details: dict[str, Any], updates: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Parts of the page."""
    summary = details["summary"]
    title = safe(one_line(summary["title"], summary["conversation"]))
    style = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"
    yield (
        '<!DOCTYPE html>\n<html><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style></head>\n<body><header><h1>{title}</h1>"
        f'<p class="small">{safe(about(summary))}</p></header>\n'
    )
    for heading, item in headed(items(updates)):
        if heading is not None:
            yield f"<h2>{safe(heading)}</h2>\n"
        if isinstance(item, ShownMessage):
            yield from _said(item)
        elif isinstance(item, ShownCall):
            yield from _tool(item)
        else:
            yield _plan(item)
    yield "</body></html>\n"


def _said(item: ShownMessage) -> Iterator[str]:
    if item.speaker == THINKING:
        yield f"<details><summary>{THINKING}</summary>"
    kinds = {OURS: "note", THINKING: "small", CLAUDE: "claude"}
    yield f'<div class="text {kinds.get(item.speaker, "you")}">'
    if item.speaker == OURS:
        yield f'<span class="small">{OURS}:</span>\n'
    for block in item.blocks:
        quote = item.speaker == OURS and block.get("type") == "text"
        shown = {**block, "text": unquoted(block["text"])} if quote else block
        yield _block(shown, is_prose=item.speaker in (CLAUDE, OURS))
    yield "</div></details>\n" if item.speaker == THINKING else "</div>\n"


def _tool(tool: ShownCall) -> Iterator[str]:
    head = f"{RESULTS.get(tool.status, '…')} <code>{safe(tool.title)}</code>"
    css = ' class="failed"' if tool.status == "failed" else ""
    short = beside_title(tool)
    if short is not None:
        beside = f" — <code>{safe(short)}</code>" if short else ""
        yield f'<div class="tool"><span{css}>{head}</span>{beside}</div>\n'
        return
    is_open = " open" if any(part.get("type") == "diff" for part in tool.content) else ""
    yield f'<details class="tool"{is_open}><summary{css}>{head}</summary>'
    if tool.asked:
        yield f"<pre>{safe(tool.asked.rstrip())}</pre>"
    for part in tool.content:
        content = fields(part.get("content"))
        if part.get("type") == "diff":
            old, new, *lines = changes.patch(part)
            shown = "\n".join((safe(old), safe(new), *map(_line, lines)))
            yield f"<pre>{shown}</pre>"
        elif part.get("type") == "content" and content.get("type") == "image":
            yield _block(content, is_prose=False)
        elif part.get("type") == "content":
            yield f"<pre>{safe(output(content).rstrip())}</pre>"
    yield "</details>\n"


def _plan(plan: ShownPlan) -> str:
    lines = (
        f"<li>{_MARKS.get(str(one.get('status')), '☐')} {safe(str(one.get('content')))}</li>"
        for one in plan.entries
    )
    return f'<p class="small">{safe(TASKS)}:</p><ul class="plan">{"".join(lines)}</ul>\n'


def _line(line: str) -> str:
    css = {"+": "add", "-": "del"}.get(line[:1])
    return f'<span class="{css}">{safe(line)}</span>' if css else safe(line)


def _block(content: dict[str, Any], *, is_prose: bool) -> str:
    """A content block with all that it holds."""
    resource = fields(content.get("resource"))
    kind, data = content.get("mimeType"), content.get("data")
    if content.get("type") == "image":
        if kind in images.KINDS and isinstance(data, str) and BASE64.fullmatch(data):
            return f'<img alt="image" src="data:{kind};base64,{data}">'
        return '<span class="small">(an image that cannot be shown)</span>'
    if isinstance(blob := resource.get("blob"), str) and BASE64.fullmatch(blob):
        uri = str(resource.get("uri") or "file")
        name = safe(uri.rstrip("/").rpartition("/")[2] or "file")
        link = f"data:application/octet-stream;base64,{blob}"
        return f'<a download="{name}" href="{link}">{safe(uri)}</a>\n'
    if isinstance(text := resource.get("text"), str):
        return f"<details><summary>{safe(str(resource.get('uri')))}</summary><pre>{safe(text)}</pre></details>"
    text = block_text(content)
    return prose.html(text) if is_prose else prose.blocks_only(text)
