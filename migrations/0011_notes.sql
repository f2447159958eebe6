-- What Claude is to learn with the next prompt of a session. `turn_id`: the prompt that carries it.
CREATE TABLE acp_notes (
    note_id TEXT PRIMARY KEY,
    acp_session_id TEXT NOT NULL,
    position BIGINT NOT NULL, -- order within the session
    text TEXT NOT NULL,
    turn_id TEXT
);
CREATE INDEX acp_notes_session ON acp_notes(acp_session_id, position);
CREATE INDEX acp_notes_turn ON acp_notes(turn_id);
