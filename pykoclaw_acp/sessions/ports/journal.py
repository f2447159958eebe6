"""All parts of the database at once."""

from __future__ import annotations

from typing import Protocol

from pykoclaw_acp.sessions.ports.blobs import BlobStore
from pykoclaw_acp.sessions.ports.context import ContextStore
from pykoclaw_acp.sessions.ports.conversations import ConversationStore
from pykoclaw_acp.sessions.ports.cursors import CursorStore
from pykoclaw_acp.sessions.ports.found_transcripts import TranscriptSessions
from pykoclaw_acp.sessions.ports.limit_waits import LimitWaitStore
from pykoclaw_acp.sessions.ports.listing import ListStore
from pykoclaw_acp.sessions.ports.log import LogStore
from pykoclaw_acp.sessions.ports.notes import NoteStore
from pykoclaw_acp.sessions.ports.offers import OfferStore
from pykoclaw_acp.sessions.ports.permissions import PermissionStore
from pykoclaw_acp.sessions.ports.rules import RuleStore
from pykoclaw_acp.sessions.ports.sessions import SessionStore
from pykoclaw_acp.sessions.ports.trust import TrustStore
from pykoclaw_acp.sessions.ports.turns import TurnJournal


class TurnsAndNotes(TurnJournal, NoteStore, BlobStore, RuleStore, Protocol):
    """For whoever runs turns: each prompt carries the pending notes, and its blobs, and its worker has
    the directory's rules.
    """


class LogAndBlobs(LogStore, BlobStore, Protocol):
    """For whoever shows a log: some events refer to blobs."""


class LogAndContext(LogStore, ContextStore, Protocol):
    """For whoever finds that Claude's memory is gone: the log has what was said."""


class ConversationsAndNotes(ConversationStore, NoteStore, LogAndContext, Protocol):
    """For whoever looks for what other programs did: Claude learns of it by notes."""


class ListAndTranscripts(ListStore, TranscriptSessions, ConversationStore, Protocol):
    """For whoever lists sessions: some of them have to be made first."""


class Journal(
    SessionStore,
    TurnJournal,
    LogStore,
    PermissionStore,
    TrustStore,
    RuleStore,
    CursorStore,
    OfferStore,
    NoteStore,
    ContextStore,
    ConversationStore,
    ListStore,
    TranscriptSessions,
    BlobStore,
    LimitWaitStore,
    Protocol,
):
    """For whoever builds sessions; each of their modules takes the part that it uses."""
