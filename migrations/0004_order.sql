-- The order of turns and questions, and the times that decide something, without the wall clock.

-- A turn's place among its session's turns, from 1, given as it is accepted; NULL: it had ended before there were any.
ALTER TABLE acp_turns ADD COLUMN position BIGINT;
ALTER TABLE acp_turns ADD COLUMN attempts BIGINT NOT NULL DEFAULT 0; -- daemons that have begun to prepare it for Claude
ALTER TABLE acp_turns ADD COLUMN unattended BIGINT NOT NULL DEFAULT 0; -- 1: it may run with nobody behind it

-- rowid (SQLite) is the order in which they were accepted; below them stay as many places as there are older turns.
UPDATE acp_turns SET position = (
    SELECT COUNT(*) FROM acp_turns AS other
    WHERE other.acp_session_id = acp_turns.acp_session_id
    AND (other.state NOT IN ('queued', 'dispatched', 'running') OR other.rowid <= acp_turns.rowid)
)
WHERE state IN ('queued', 'dispatched', 'running');

CREATE UNIQUE INDEX acp_turns_position ON acp_turns(acp_session_id, position);

-- The data directory's own clock: milliseconds in which the machine was awake, counted on from one boot to the next.
-- At `uptime` ms of the boot `boot_id` it stood at `counted`. Columns named *_clock hold its time; 0: before the first.
CREATE TABLE acp_clock (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    boot_id TEXT NOT NULL,
    uptime BIGINT NOT NULL,
    counted BIGINT NOT NULL
);

ALTER TABLE acp_sessions ADD COLUMN used_clock BIGINT NOT NULL DEFAULT 0; -- it was last used
ALTER TABLE acp_turns ADD COLUMN sent_clock BIGINT NOT NULL DEFAULT 0; -- its client sent it
ALTER TABLE acp_turns ADD COLUMN ended_clock BIGINT; -- NULL: it has not ended, or long before there was such a clock

-- Prompts that ended just now may still be sent again by clients that came with the version before.
UPDATE acp_turns SET ended_clock = 0
WHERE rowid > (SELECT MAX(rowid) FROM acp_turns) - 100
AND ended_at >= (SELECT MAX(ended_at) FROM acp_turns WHERE rowid > (SELECT MAX(rowid) FROM acp_turns) - 100) - 600000;

ALTER TABLE acp_permissions ADD COLUMN position BIGINT; -- among all questions, from 1; NULL: settled before there were any
ALTER TABLE acp_permissions ADD COLUMN asked_clock BIGINT; -- NULL: by a daemon that had no such clock
ALTER TABLE acp_permissions ADD COLUMN deadline_clock BIGINT;

UPDATE acp_permissions SET position = (
    SELECT COUNT(*) FROM acp_permissions AS other WHERE other.outcome IS NULL AND other.rowid <= acp_permissions.rowid
)
WHERE outcome IS NULL;

CREATE UNIQUE INDEX acp_permissions_position ON acp_permissions(position);

ALTER TABLE acp_offers ADD COLUMN position BIGINT NOT NULL DEFAULT 0; -- the greatest is the newest
UPDATE acp_offers SET position = (
    SELECT COUNT(*) FROM acp_offers AS other WHERE other.updated_at <= acp_offers.updated_at
);
