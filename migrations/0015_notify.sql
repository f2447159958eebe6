-- What people were told of, or are still to be told of, while nobody was there: PYKOCLAW_NOTIFY.

CREATE TABLE acp_notices (
    notice_id TEXT PRIMARY KEY, -- made from what it tells of, so that nothing is told under two ids
    acp_session_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL, -- JSON, as targets get it
    created_at BIGINT NOT NULL
);

-- A notice for a command or a webhook. One for a conversation is a row of delivery_queue instead.
CREATE TABLE acp_notifications (
    notice_id TEXT NOT NULL,
    target TEXT NOT NULL, -- kind and hash of the target, as an address may hold a secret
    attempts BIGINT NOT NULL DEFAULT 0,
    next_clock BIGINT NOT NULL, -- when it is to be tried
    outcome TEXT, -- NULL: still to be accepted
    reason TEXT, -- of the last failure
    PRIMARY KEY (notice_id, target)
);
CREATE INDEX acp_notifications_waiting ON acp_notifications(next_clock) WHERE outcome IS NULL;

-- One row while PYKOCLAW_NOTIFY is set: what ended before that, people were told of or will not be.
CREATE TABLE acp_notify (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    since_clock BIGINT NOT NULL
);
