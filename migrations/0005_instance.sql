-- Which instance this database is, and where its data directory was last: one row. Workers know the id; a copy of the
-- file gets another one.

CREATE TABLE acp_instance (
    single BIGINT PRIMARY KEY CHECK (single = 1),
    instance TEXT NOT NULL,
    formerly TEXT, -- what workers of a version without ids call the instance; NULL: it has none
    data TEXT NOT NULL, -- the data directory
    device TEXT NOT NULL, -- numbers of up to 64 bits
    inode TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    copied_from TEXT, -- NULL: it is no copy
    copied_at BIGINT,
    created_at BIGINT NOT NULL
);
