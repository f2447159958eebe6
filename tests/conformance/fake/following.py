"""`_pykoclaw.dev/follow`, as the fake agent does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.conformance.fake import own_meta
from tests.conformance.fake.installation import Frame, Session

FOLLOW: Final = "_pykoclaw.dev/follow"


class Followers:
    """Those of one connection who follow sessions until these are closed."""

    def __init__(self, emit: Callable[[Frame], None]) -> None:
        self._emit = emit
        self._live: dict[str, Any] = {}  # ids of requests by session

    def begin(self, message_id: Any, session: Session, params: Frame) -> None:
        for update in own_meta.placed(session, params.get("after", 0)):
            self.said(session, update)
        self._live[session.id] = message_id
        if not params.get("live"):
            self.end(session)

    def said(self, session: Session, update: Frame) -> None:
        seq = update["_meta"]["pykoclaw.dev/seq"]
        self._tell("event", session=session.id, seq=seq, turnId=None, update=update)

    def more(self, session: Session, update: Frame) -> None:
        """An update, live."""
        if session.id in self._live:
            self.said(session, update)

    def asked(self, ask_id: str, method: str, params: Frame) -> None:
        if method == "session/request_permission" and params["sessionId"] in self._live:
            title = params["toolCall"]["title"]
            self._tell("question", id=ask_id, session=params["sessionId"], title=title)

    def settled(self, ask_id: str, method: str, params: Frame) -> None:
        if method == "session/request_permission" and params["sessionId"] in self._live:
            self._tell("settled", id=ask_id)

    def end(self, session: Session) -> None:
        if (message_id := self._live.pop(session.id, None)) is not None:
            result = {"seq": len(session.history)}
            self._emit({"jsonrpc": "2.0", "id": message_id, "result": result})

    def _tell(self, what: str, **params: Any) -> None:
        self._emit({"jsonrpc": "2.0", "method": f"_pykoclaw.dev/{what}", "params": params})
