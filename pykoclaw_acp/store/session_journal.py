"""The journal on the database: all of its parts at once."""

from __future__ import annotations

from pykoclaw_acp.store.journal.blobs import SqlBlobStore
from pykoclaw_acp.store.journal.context import SqlContextStore
from pykoclaw_acp.store.journal.conversations import SqlConversationStore
from pykoclaw_acp.store.journal.cursors import SqlCursorStore
from pykoclaw_acp.store.journal.found_transcripts import SqlFoundStore
from pykoclaw_acp.store.journal.imports import SqlImportStore
from pykoclaw_acp.store.journal.limit_waits import SqlLimitWaitStore
from pykoclaw_acp.store.journal.listing import SqlListStore
from pykoclaw_acp.store.journal.log import SqlLogStore
from pykoclaw_acp.store.journal.notes import SqlNoteStore
from pykoclaw_acp.store.journal.offers import SqlOfferStore
from pykoclaw_acp.store.journal.permissions import SqlPermissionStore
from pykoclaw_acp.store.journal.rules import SqlRuleStore
from pykoclaw_acp.store.journal.sessions import SqlSessionStore
from pykoclaw_acp.store.journal.trust import SqlTrustStore
from pykoclaw_acp.store.journal.turns import SqlTurnJournal


class SessionJournal(
    SqlSessionStore,
    SqlTurnJournal,
    SqlLogStore,
    SqlPermissionStore,
    SqlTrustStore,
    SqlRuleStore,
    SqlCursorStore,
    SqlOfferStore,
    SqlNoteStore,
    SqlContextStore,
    SqlImportStore,
    SqlConversationStore,
    SqlListStore,
    SqlFoundStore,
    SqlBlobStore,
    SqlLimitWaitStore,
):
    """Implements `sessions.ports.Journal` and `transcripts.ports.ImportStore`."""
