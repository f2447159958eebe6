"""Named steps at which crash tests kill the server (`PYKOCLAW_CRASH_AT=step` or `step:3`)."""

from __future__ import annotations

import os
import signal
from typing import Final

from pykoclaw_acp.errors import ConfigurationError

STEPS: Final = (
    "prompt_received",
    "blobs_written",
    "turn_queued",
    "worker_epoch",
    "worker_launched",
    "worker_recorded",
    "worker_ready",
    "worker_acquired",
    "turn_dispatched",
    "prompt_sent",
    "frames_received",
    "frames_committed",
    "frames_acknowledged",
    "update_sent",
    "turn_end_committed",
    "response_ready",
    "response_sent",
)
# Before a client's line that has no response is dealt with.
UNANSWERED: Final = ("answer_received", "notification_received")
# At a start that takes over from another daemon.
ADOPTION: Final = ("spool_taken", "recovered", "worker_attached")
# In the merge of two logs.
MERGING: Final = ("merge_piece_written", "conversation_united", "merge_piece_finished")
# In the conversion of an old log.
CONVERSION: Final = ("log_piece_read", "log_piece_converted")
# In a delivery, and in the run of a scheduled task.
DELIVERY: Final = ("delivery_committed", "task_claimed", "task_run_ended", "task_deleted")
# In the making of a fork.
FORKING: Final = ("fork_begun", "fork_piece_copied", "fork_shown")
# When a prompt goes into the running turn.
STEERING: Final = ("turn_steered",)
# In methods that do something in more than one step.
METHODS: Final = ("session_hidden", "choice_committed", "files_put_back", "session_rewound")
EVERY: Final = (
    STEPS + UNANSWERED + ADOPTION + MERGING + CONVERSION + DELIVERY + FORKING + STEERING + METHODS
)

_remaining: dict[str, int] = {}


def arm(where: str | None) -> None:
    """Arm a step, or its n-th occurrence; raises ConfigurationError for an unknown step."""
    _remaining.clear()
    if where is not None:
        name, _, count = where.partition(":")
        if name not in EVERY:
            known = ", ".join(EVERY)
            raise ConfigurationError(f"PYKOCLAW_CRASH_AT names no step; there are {known}.")
        _remaining[name] = int(count or 1)


def reached(name: str) -> None:
    """Mark a step; kills this process if the step is armed."""
    if name in _remaining:
        _remaining[name] -= 1
        if _remaining[name] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
