-- The first format, as the first version made it.
CREATE TABLE upload (
    seq          INTEGER PRIMARY KEY,
    id           BLOB NOT NULL UNIQUE,      -- 16 octets
    prelude      BLOB NOT NULL,             -- empty: it has not come yet
    total        INTEGER NOT NULL,
    dest         TEXT NOT NULL,
    expires      INTEGER NOT NULL,          -- of the ticket; without a prelude, when the row goes. This and all other times: seconds since 1970, UTC
    state        INTEGER NOT NULL,          -- a position in State::ALL
    payload      INTEGER NOT NULL,          -- 1: the file is there and counts
    stored       BLOB NOT NULL,             -- ranges, see upload.rs
    stored_bytes INTEGER NOT NULL,
    delivered    BLOB NOT NULL,
    created      INTEGER NOT NULL,
    updated      INTEGER NOT NULL,
    stored_at    INTEGER,
    received_at  INTEGER,
    finished_at  INTEGER,
    attempts     INTEGER NOT NULL,
    due          INTEGER,                   -- NULL: nothing is to be done
    forget_at    INTEGER NOT NULL,          -- when it expires; once final, when the row goes
    reason_code  TEXT,
    reason       TEXT,
    answer       BLOB
);
CREATE INDEX upload_due ON upload (due) WHERE due IS NOT NULL;
CREATE INDEX upload_due_send ON upload (due) WHERE due IS NOT NULL AND state < 3;
CREATE INDEX upload_due_small ON upload (due) WHERE due IS NOT NULL AND state < 3 AND total < 1048576;
CREATE INDEX upload_due_ask ON upload (due) WHERE due IS NOT NULL AND state >= 3;
CREATE INDEX upload_forget ON upload (forget_at);
CREATE TABLE room (kept INTEGER NOT NULL);  -- one row: the sum of stored_bytes where payload = 1
INSERT INTO room VALUES (0);
