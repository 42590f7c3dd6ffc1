-- The schema of a store, at the version that `schema.rs` names.

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
    parts         BLOB,                 -- for a task on several nodes: its parts, MessagePack
    usage         BLOB    NOT NULL,     -- what it used, and its measurement certificate, MessagePack
    placed_at     INTEGER,              -- when its last attempt reached each stage
    staged_at     INTEGER,
    exited_at     INTEGER,
    steps         BLOB,                 -- the steps of its last attempt, MessagePack
    PRIMARY KEY (job, idx)
) STRICT, WITHOUT ROWID;

-- Attempts that were requeued before their results were fetched.
CREATE TABLE IF NOT EXISTS earlier_attempts (
    job     INTEGER NOT NULL,
    idx     INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    bytes   BLOB    NOT NULL,           -- the row that `ended_tasks` would have, MessagePack
    PRIMARY KEY (job, idx, attempt)
) STRICT, WITHOUT ROWID;

-- Chunks so small that a row costs less than a file of their own.
CREATE TABLE IF NOT EXISTS blobs (
    digest BLOB NOT NULL PRIMARY KEY,   -- 32 bytes
    bytes  BLOB NOT NULL
) STRICT;

-- Jobs that have ended: what they are found by, and bytes that only the head understands.
CREATE TABLE IF NOT EXISTS ended_jobs (
    id        INTEGER PRIMARY KEY,
    key       BLOB    NOT NULL,         -- 16 bytes: the key with which it was submitted
    user      TEXT    NOT NULL,
    state     TEXT    NOT NULL,         -- an ended state, such as `completed`
    ended     INTEGER NOT NULL,         -- milliseconds on the cluster's clock
    snapshot  BLOB,                     -- 32 bytes: the hash of the captured folder in which it ran
    results   INTEGER NOT NULL,         -- whether some result is kept
    unfetched INTEGER NOT NULL,         -- whether some kept result has not reached a client
    fetched   INTEGER NOT NULL,         -- whether some kept result has
    ended_at  INTEGER NOT NULL,         -- milliseconds since the Unix epoch
    partition TEXT    NOT NULL,         -- empty if it had none
    name      TEXT    NOT NULL,
    cpu_held_ms        INTEGER NOT NULL, -- what it held and used, as in `accounting_days`
    cpu_used_ms        INTEGER NOT NULL,
    gpu_held_ms        INTEGER NOT NULL,
    memory_held_mib_ms INTEGER NOT NULL,
    memory_used_mib_ms INTEGER NOT NULL,
    energy_uj          INTEGER NOT NULL,
    bytes     BLOB    NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS ended_jobs_key ON ended_jobs (key);
CREATE INDEX IF NOT EXISTS ended_jobs_due ON ended_jobs (ended, id) WHERE NOT (unfetched AND snapshot IS NOT NULL);
CREATE INDEX IF NOT EXISTS ended_jobs_awaiting ON ended_jobs (ended, id) WHERE unfetched AND snapshot IS NOT NULL;
CREATE INDEX IF NOT EXISTS ended_jobs_state ON ended_jobs (state, id);
CREATE INDEX IF NOT EXISTS ended_jobs_user ON ended_jobs (user, id, state);
CREATE INDEX IF NOT EXISTS ended_jobs_unfetched ON ended_jobs (user, id) WHERE unfetched;
CREATE INDEX IF NOT EXISTS ended_jobs_fetched ON ended_jobs (ended, id) WHERE fetched;
CREATE INDEX IF NOT EXISTS ended_jobs_snapshot ON ended_jobs (snapshot) WHERE snapshot IS NOT NULL;

-- The final states of an ended array's tasks that differ from the state of the job.
CREATE TABLE IF NOT EXISTS ended_task_states (
    id    INTEGER NOT NULL,
    state TEXT    NOT NULL,
    PRIMARY KEY (id, state)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ended_task_states_state ON ended_task_states (state, id);

CREATE INDEX IF NOT EXISTS ended_jobs_at ON ended_jobs (ended_at, id, state, name);
CREATE INDEX IF NOT EXISTS ended_jobs_user_at ON ended_jobs (user, ended_at, id, state, name);

-- Sums over the jobs that ended on a day, which stay when the jobs are forgotten. Some hundred names of each user and day
-- have rows; the other jobs count under an empty name.
CREATE TABLE IF NOT EXISTS accounting_days (
    day       INTEGER NOT NULL,         -- days since 1970-01-01 UTC
    user      TEXT    NOT NULL,
    partition TEXT    NOT NULL,         -- empty for jobs that had none
    name      TEXT    NOT NULL,
    completed          INTEGER NOT NULL DEFAULT 0, -- numbers of jobs by their ending
    failed             INTEGER NOT NULL DEFAULT 0,
    cancelled          INTEGER NOT NULL DEFAULT 0,
    timeout            INTEGER NOT NULL DEFAULT 0,
    out_of_memory      INTEGER NOT NULL DEFAULT 0,
    node_fail          INTEGER NOT NULL DEFAULT 0,
    preempted          INTEGER NOT NULL DEFAULT 0,
    cpu_held_ms        INTEGER NOT NULL DEFAULT 0, -- held CPUs times the time
    cpu_used_ms        INTEGER NOT NULL DEFAULT 0, -- CPU time of processes
    gpu_held_ms        INTEGER NOT NULL DEFAULT 0, -- held GPUs times the time
    memory_held_mib_ms INTEGER NOT NULL DEFAULT 0, -- held memory times the time
    memory_used_mib_ms INTEGER NOT NULL DEFAULT 0, -- peak memory times the time
    energy_uj          INTEGER NOT NULL DEFAULT 0, -- share in the energy of the nodes
    PRIMARY KEY (day, user, partition, name)
) STRICT, WITHOUT ROWID;

-- How many of them there are: to count a million rows takes too long.
CREATE TABLE IF NOT EXISTS ended_counts (
    user  TEXT    NOT NULL,
    state TEXT    NOT NULL,
    jobs  INTEGER NOT NULL,
    PRIMARY KEY (user, state)
) STRICT, WITHOUT ROWID;

-- Environments of jobs that run or may run, each once, and which job has which.
CREATE TABLE IF NOT EXISTS environments (
    digest BLOB NOT NULL PRIMARY KEY,   -- 32 bytes
    bytes  BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS job_environments (
    job    INTEGER PRIMARY KEY,
    digest BLOB NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS job_environments_digest ON job_environments (digest);

-- Notifications until they are delivered: bytes that only the head understands.
CREATE TABLE IF NOT EXISTS outbox (
    number INTEGER NOT NULL,
    part   TEXT    NOT NULL,            -- empty, or the destination of this copy
    bytes  BLOB    NOT NULL,
    PRIMARY KEY (number, part)
) STRICT, WITHOUT ROWID;
