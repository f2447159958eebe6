-- Cursors of clients' instances: two windows of one name are two readers, and what one has seen, the other has not.

ALTER TABLE acp_cursors RENAME TO acp_cursors_by_name;

CREATE TABLE acp_cursors (
    acp_session_id TEXT NOT NULL,
    client TEXT NOT NULL, -- its name
    instance TEXT NOT NULL, -- the process that it is; '': from before instances were told apart, and ended
    front TEXT NOT NULL, -- UUID of the front, or of the connection of a client without one
    seq BIGINT NOT NULL, -- it was shown everything up to here
    used_by TEXT, -- the instance that has gone on from here; NULL: this one lives, or nobody has yet
    least BIGINT, -- whoever goes on from here is shown what follows this place, while the instance `beside` lives
    beside TEXT,
    ended_clock BIGINT, -- since when the instance is known to have ended; NULL: it is not
    spare_clock BIGINT, -- since when there has been one more of these than clients that came back; NULL: there has not
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (acp_session_id, client, instance, front)
);

INSERT INTO acp_cursors (acp_session_id, client, instance, front, seq, updated_at)
SELECT acp_session_id, client, '', '', seq, updated_at FROM acp_cursors_by_name;

DELETE FROM acp_cursors_by_name;
DROP TABLE acp_cursors_by_name;
CREATE INDEX acp_cursors_instance ON acp_cursors(instance);
