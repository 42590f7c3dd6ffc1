-- The schema of a store, at the version that `schema.rs` names, but for what `ended_jobs.sql` has.
-- Anything changed here is also a numbered step in `schema.rs` for the stores that exist.

-- The log: opaque events, numbered from 1 without gaps, from just after the snapshot.
CREATE TABLE IF NOT EXISTS events (
    sequence INTEGER PRIMARY KEY,
    checksum INTEGER NOT NULL,          -- first 8 bytes of BLAKE3 over sequence and bytes
    bytes    BLOB    NOT NULL
) STRICT;

-- The effect of every event up to and including `sequence`; at most one row.
CREATE TABLE IF NOT EXISTS snapshot (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    sequence INTEGER NOT NULL,
    checksum INTEGER NOT NULL,          -- as for events
    bytes    BLOB    NOT NULL
) STRICT;

-- The history: one row for each task that has ended and is to stay so. Times are milliseconds since the Unix epoch.
CREATE TABLE IF NOT EXISTS ended_tasks (
    job           INTEGER NOT NULL,
    idx           INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    state         TEXT    NOT NULL,     -- an ended state, such as `completed`
    exit_code     INTEGER,              -- absent when it never ran
    message       TEXT,
    node          TEXT,
    started_at    INTEGER,
    ended_at      INTEGER NOT NULL,
    result        BLOB,                 -- 32 bytes: the hash of the result's manifest
    wall_ms       INTEGER NOT NULL,
    user_ms       INTEGER NOT NULL,
    system_ms     INTEGER NOT NULL,
    max_rss_bytes INTEGER NOT NULL,
    parts         BLOB,                 -- for a task on several nodes: its parts, MessagePack
    usage         BLOB,                 -- all that it used, MessagePack; absent in rows of version 1
    PRIMARY KEY (job, idx)
) STRICT, WITHOUT ROWID;

-- Chunks so small that a row costs less than a file of their own.
CREATE TABLE IF NOT EXISTS blobs (
    digest BLOB NOT NULL PRIMARY KEY,   -- 32 bytes
    bytes  BLOB NOT NULL
) STRICT;
