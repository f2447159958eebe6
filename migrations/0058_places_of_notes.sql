-- Where a note was added: what was said before stays known after a rewind, or in a fork, to a later place.

ALTER TABLE acp_notes ADD COLUMN after_seq BIGINT; -- last seq of the log then; NULL: of an earlier version
