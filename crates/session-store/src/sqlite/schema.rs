//! The tables of the SQLite file and the two numbers that mark it as ours.

/// `ZCAP`, in the header of every file that this store has made.
pub(super) const APPLICATION_ID: u32 = 0x5A43_4150;

/// The version of the tables below, kept in `user_version`.
pub(super) const SCHEMA_VERSION: u32 = 2;

/// The oldest version that is brought up to the present one.
pub(super) const OLDEST_VERSION: u32 = 1;

/// The table that version 2 has brought. Its numbers are never reused: one that was shown for revoking means that one for ever.
macro_rules! approvals {
    () => {
        "CREATE TABLE approvals (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    agent TEXT NOT NULL,
    workspace BLOB NOT NULL,
    tool TEXT NOT NULL,
    rule TEXT NOT NULL,
    ruling INTEGER NOT NULL,
    session TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    UNIQUE (agent, workspace, tool, rule)
) STRICT;
CREATE INDEX approvals_by_session ON approvals (session);
"
    };
}

/// Brings a file of version 1 up to the present one. The other tables are as they were, so a process that has the file open
/// by the older definition works on.
pub(super) const FROM_VERSION_1: &str = concat!(approvals!(), "PRAGMA user_version = 2;");

/// The tables of a fresh file.
///
/// Session keys are never reused, so rows that outlive a half-deleted session by some fault can never turn up in another
/// one. The partial indexes hold only the live sessions and the running turns: they cost nothing on the append path.
pub(super) const CREATE: &str = concat!(
    "
BEGIN IMMEDIATE;
CREATE TABLE sessions (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    workspace BLOB NOT NULL,
    agent TEXT NOT NULL,
    title TEXT,
    created_at_ms INTEGER NOT NULL,
    last_activity_ms INTEGER NOT NULL,
    additional_directories BLOB NOT NULL,
    config BLOB,
    owner TEXT
) STRICT;
CREATE INDEX sessions_by_activity ON sessions (last_activity_ms DESC, id);
CREATE INDEX sessions_by_workspace ON sessions (workspace, last_activity_ms DESC, id);
CREATE INDEX sessions_owned ON sessions (owner) WHERE owner IS NOT NULL;
CREATE TABLE events (
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    turn INTEGER,
    payload BLOB NOT NULL,
    PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE messages (
    session INTEGER NOT NULL,
    position INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    payload BLOB NOT NULL,
    PRIMARY KEY (session, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE turns (
    session INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    state INTEGER NOT NULL,
    owner TEXT NOT NULL,
    prompt BLOB NOT NULL,
    stop_reason TEXT,
    started_at_ms INTEGER NOT NULL,
    ended_at_ms INTEGER,
    last_seq INTEGER,
    PRIMARY KEY (session, turn)
) STRICT, WITHOUT ROWID;
CREATE INDEX turns_running ON turns (owner) WHERE state = 0;
",
    approvals!(),
    "PRAGMA application_id = 1514357072;
PRAGMA user_version = 2;
COMMIT;
"
);

#[cfg(test)]
mod tests;
