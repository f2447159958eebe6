"""A test double of Mitto, built from what Mitto 09f57d87 (2026-06-18) was seen to do as an ACP
client.

It calls in Mitto's order, with Mitto's limits, kills like Mitto, and shows what Mitto would show.
"""

from tests.e2e.mitto.conversation import Conversation
from tests.e2e.mitto.mitto import Mitto
from tests.e2e.mitto.wire import Overdue, Wire

__all__ = ["Conversation", "Mitto", "Overdue", "Wire"]
