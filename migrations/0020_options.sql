-- What is chosen in a session besides mode and model.

ALTER TABLE acp_sessions ADD COLUMN config TEXT; -- JSON: effort, fast; NULL: nothing was chosen

-- What clients asked of Claude for a session when they opened it.
CREATE TABLE acp_session_options (
    acp_session_id TEXT PRIMARY KEY,
    options TEXT NOT NULL -- JSON: system prompt, tools, setting sources, limit of a turn, environment; no secrets
);
