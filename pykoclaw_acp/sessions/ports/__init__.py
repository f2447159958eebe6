"""What sessions need from outside: the database (`Journal`, in parts), workers, clients,
directories.

Implemented in store/, pool/, server/ and trust/. A module of sessions/ takes only the part that it
uses.
"""

from pykoclaw_acp.sessions.ports.blobs import BlobStore
from pykoclaw_acp.sessions.ports.clients import Client
from pykoclaw_acp.sessions.ports.conversations import ConversationStore
from pykoclaw_acp.sessions.ports.cursors import CursorStore
from pykoclaw_acp.sessions.ports.deliveries import DeliveryStore
from pykoclaw_acp.sessions.ports.found_transcripts import FoundTranscripts, TranscriptSessions
from pykoclaw_acp.sessions.ports.journal import Journal
from pykoclaw_acp.sessions.ports.listing import ListStore
from pykoclaw_acp.sessions.ports.locks import TurnLocks
from pykoclaw_acp.sessions.ports.log import LogStore
from pykoclaw_acp.sessions.ports.notes import NoteStore
from pykoclaw_acp.sessions.ports.offers import OfferStore
from pykoclaw_acp.sessions.ports.permissions import PermissionStore
from pykoclaw_acp.sessions.ports.sessions import SessionStore
from pykoclaw_acp.sessions.ports.store import Store
from pykoclaw_acp.sessions.ports.transcripts import Imported, RowStanding, Transcripts
from pykoclaw_acp.sessions.ports.trust import TrustStore, Workspaces
from pykoclaw_acp.sessions.ports.turns import TurnJournal
from pykoclaw_acp.sessions.ports.workers import Workers

__all__ = [
    "BlobStore",
    "Client",
    "ConversationStore",
    "CursorStore",
    "DeliveryStore",
    "FoundTranscripts",
    "Imported",
    "Journal",
    "ListStore",
    "LogStore",
    "NoteStore",
    "OfferStore",
    "PermissionStore",
    "RowStanding",
    "SessionStore",
    "Store",
    "TranscriptSessions",
    "Transcripts",
    "TrustStore",
    "TurnJournal",
    "TurnLocks",
    "Workers",
    "Workspaces",
]
