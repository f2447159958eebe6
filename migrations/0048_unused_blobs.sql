-- Blobs that no session used when the server last looked, and since when: files have no other time than the wall clock's, which may jump.
CREATE TABLE acp_unused_blobs (
    sha256 TEXT PRIMARY KEY,
    since_clock BIGINT NOT NULL -- ms of acp_clock
);
