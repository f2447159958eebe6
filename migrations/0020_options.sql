-- What is chosen in a session besides mode and model.

ALTER TABLE acp_sessions ADD COLUMN config TEXT; -- JSON: effort, fast; NULL: nothing was chosen
