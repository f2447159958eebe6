-- Whose prompt a turn is: one that a new daemon finds waiting runs only while its own client, or its front, is there.
ALTER TABLE acp_turns ADD COLUMN client TEXT; -- name of the client that sent it; NULL: not known
