"""The twin of `sessions.ports.Journal`: all parts on one in-memory database, with those of
`transcripts.ports`.
"""

from __future__ import annotations

from tests.twins.blobs import MemoryBlobStore
from tests.twins.context import MemoryContextStore
from tests.twins.conversations import MemoryConversationStore
from tests.twins.cursors import MemoryCursorStore
from tests.twins.found_transcripts import MemoryFoundStore, MemoryTranscriptSessions
from tests.twins.imports import MemoryImportStore
from tests.twins.limit_waits import MemoryLimitWaitStore
from tests.twins.listing import MemoryListStore
from tests.twins.log import MemoryLogStore
from tests.twins.notes import MemoryNoteStore
from tests.twins.offers import MemoryOfferStore
from tests.twins.permissions import MemoryPermissionStore
from tests.twins.rules import MemoryRuleStore
from tests.twins.sessions import MemorySessionStore
from tests.twins.trust import MemoryTrustStore
from tests.twins.turns import MemoryTurnJournal


class MemoryJournal(
    MemorySessionStore,
    MemoryTurnJournal,
    MemoryLogStore,
    MemoryPermissionStore,
    MemoryTrustStore,
    MemoryRuleStore,
    MemoryCursorStore,
    MemoryOfferStore,
    MemoryNoteStore,
    MemoryContextStore,
    MemoryImportStore,
    MemoryConversationStore,
    MemoryListStore,
    MemoryTranscriptSessions,
    MemoryFoundStore,
    MemoryBlobStore,
    MemoryLimitWaitStore,
):
    pass
