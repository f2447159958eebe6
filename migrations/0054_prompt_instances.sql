-- A client is a process, not its name: whose prompt a turn is, where several processes of one name are there.

ALTER TABLE acp_turns ADD COLUMN instance TEXT; -- process of the client that sent it; NULL: not known
