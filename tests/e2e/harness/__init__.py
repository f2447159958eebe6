"""The whole program under test: a raw ACP client, the processes behind it, and a home of their own.

Every frame that a server writes is validated against the official JSON schema.
"""

from tests.e2e.harness.client import Client, RpcError, ServerGone
from tests.e2e.harness.processes import Process
from tests.e2e.harness.stack import Stack, script, text

__all__ = ["Client", "Process", "RpcError", "ServerGone", "Stack", "script", "text"]
