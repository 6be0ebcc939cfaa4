//! The tables of the index, as each format of the folder has changed them: [`STEPS`].

/// The format's number, kept in `user_version`.
pub const FORMAT: u32 = STEPS.len() as u32;

/// What each format changes in the one before it, the first included. A folder of format *n* is brought to the latest by the steps
/// after its own, in one transaction; a new one by all of them.
pub const STEPS: [&str; 11] =
    [SCHEMA, EARLY, TALLY, DEVICES, RESOURCES, CHECKSUMS, FEWER, ENDED, AWAY, TAILS, SEGMENTS];

const SCHEMA: &str = "
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
";

/// What format 2 has more than format 1: uploads whose prelude has not come. A version that knows only format 1 would take
/// an empty prelude for one.
const EARLY: &str = "CREATE INDEX upload_early ON upload (id) WHERE prelude = x'';";

/// What format 3 has more than format 2: the sums by state, for whoever looks at the gateway. Triggers keep them, so that no
/// statement can forget to.
const TALLY: &str = "
CREATE TABLE tally (state INTEGER PRIMARY KEY, uploads INTEGER NOT NULL, bytes INTEGER NOT NULL);
INSERT INTO tally SELECT state, count(*), sum(total) FROM upload GROUP BY state;
CREATE TRIGGER tally_new AFTER INSERT ON upload BEGIN
    INSERT INTO tally VALUES (NEW.state, 1, NEW.total)
    ON CONFLICT (state) DO UPDATE SET uploads = uploads + 1, bytes = bytes + NEW.total;
END;
CREATE TRIGGER tally_moved AFTER UPDATE OF state ON upload WHEN NEW.state <> OLD.state BEGIN
    UPDATE tally SET uploads = uploads - 1, bytes = bytes - OLD.total WHERE state = OLD.state;
    INSERT INTO tally VALUES (NEW.state, 1, NEW.total)
    ON CONFLICT (state) DO UPDATE SET uploads = uploads + 1, bytes = bytes + NEW.total;
END;
CREATE TRIGGER tally_gone AFTER DELETE ON upload BEGIN
    UPDATE tally SET uploads = uploads - 1, bytes = bytes - OLD.total WHERE state = OLD.state;
END;
";

/// What format 4 has more than format 3: whose an upload is and when it should arrive, what is due in that order, and what each device
/// has here. `ready` divides what is due now from what waits for a time, so that the order can be another than that of times.
const DEVICES: &str = "
ALTER TABLE upload ADD COLUMN device BLOB NOT NULL DEFAULT x'00000000000000000000000000000000'; -- zeros: not known
ALTER TABLE upload ADD COLUMN deadline INTEGER NOT NULL DEFAULT 4294967296;                     -- after all times: none
ALTER TABLE upload ADD COLUMN ready INTEGER NOT NULL DEFAULT 0;                                 -- 1: `due` has come
DROP INDEX upload_due;
CREATE INDEX upload_waits ON upload (due) WHERE due IS NOT NULL AND ready = 0;
CREATE INDEX upload_ready_send ON upload (device, deadline, seq) WHERE due IS NOT NULL AND ready = 1 AND state < 3;
CREATE INDEX upload_ready_small ON upload (device, deadline, seq) WHERE due IS NOT NULL AND ready = 1 AND state < 3 AND total < 1048576;
CREATE INDEX upload_ready_ask ON upload (device, deadline, seq) WHERE due IS NOT NULL AND ready = 1 AND state >= 3;
CREATE TABLE holding (device BLOB PRIMARY KEY, uploads INTEGER NOT NULL, bytes INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO holding SELECT device, count(*), sum(stored_bytes) FROM upload WHERE payload = 1 GROUP BY device;
CREATE TRIGGER holding_new AFTER INSERT ON upload WHEN NEW.payload = 1 BEGIN
    INSERT INTO holding VALUES (NEW.device, 1, NEW.stored_bytes)
    ON CONFLICT (device) DO UPDATE SET uploads = uploads + 1, bytes = bytes + NEW.stored_bytes;
END;
CREATE TRIGGER holding_grown AFTER UPDATE OF stored_bytes ON upload WHEN NEW.payload = 1 AND OLD.payload = 1 BEGIN
    UPDATE holding SET bytes = bytes + NEW.stored_bytes - OLD.stored_bytes WHERE device = NEW.device;
END;
CREATE TRIGGER holding_let_go AFTER UPDATE OF payload ON upload WHEN NEW.payload = 0 AND OLD.payload = 1 BEGIN
    UPDATE holding SET uploads = uploads - 1, bytes = bytes - OLD.stored_bytes WHERE device = OLD.device;
    DELETE FROM holding WHERE device = OLD.device AND uploads = 0;
END;
CREATE TRIGGER holding_gone AFTER DELETE ON upload WHEN OLD.payload = 1 BEGIN
    UPDATE holding SET uploads = uploads - 1, bytes = bytes - OLD.stored_bytes WHERE device = OLD.device;
    DELETE FROM holding WHERE device = OLD.device AND uploads = 0;
END;
";

/// The table of resources.
const RESOURCES: &str = "
CREATE TABLE resource (
    token   BLOB PRIMARY KEY,   -- 16 octets
    device  BLOB NOT NULL,
    dest    TEXT NOT NULL,
    total   INTEGER,            -- NULL: not known yet
    upload  BLOB,               -- its id; NULL: the prelude has not come yet
    tail_at INTEGER NOT NULL,   -- where in Z the tail begins: all before is in the upload's file
    tail    BLOB NOT NULL,      -- less than a record and a prelude
    done    INTEGER NOT NULL,   -- 1: all of Z has come
    expires INTEGER NOT NULL
);
CREATE INDEX resource_expires ON resource (expires);
";

/// What format 6 has more than format 5: checksums of records, see sums.rs. They go with the payload.
const CHECKSUMS: &str = "
CREATE TABLE sums (upload INTEGER NOT NULL, part INTEGER NOT NULL, sums BLOB NOT NULL, PRIMARY KEY (upload, part)) WITHOUT ROWID;
CREATE TRIGGER sums_let_go AFTER UPDATE OF payload ON upload WHEN NEW.payload = 0 AND OLD.payload = 1 BEGIN
    DELETE FROM sums WHERE upload = OLD.seq;
END;
CREATE TRIGGER sums_gone AFTER DELETE ON upload BEGIN
    DELETE FROM sums WHERE upload = OLD.seq;
END;
";

/// What format 7 has less than format 6: the indexes of an order by time alone, which nothing asks for since there is that by device. Each
/// was a page more to write whenever an upload's state changed.
const FEWER: &str = "
DROP INDEX upload_due_send;
DROP INDEX upload_due_small;
DROP INDEX upload_due_ask;
";

/// What format 8 has more than format 7: what ended uploads take, in all and of each device, and the order in which they go. A row counts 512 bytes, for its fields of
/// fixed length and its places in the indexes, and what it has of the others.
const ENDED: &str = "
ALTER TABLE upload ADD COLUMN weight INTEGER GENERATED ALWAYS AS (iif(finished_at IS NULL, 0,
    512 + length(dest) + length(stored) + length(delivered) + ifnull(length(reason), 0) + ifnull(length(answer), 0))) VIRTUAL;
ALTER TABLE room ADD COLUMN ended INTEGER NOT NULL DEFAULT 0;
CREATE TABLE ended (device BLOB PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX ended_most ON ended (bytes);
CREATE INDEX upload_ended ON upload (device, answer IS NULL, finished_at) WHERE finished_at IS NOT NULL;
INSERT INTO ended SELECT device, sum(weight) FROM upload WHERE finished_at IS NOT NULL GROUP BY device;
UPDATE room SET ended = (SELECT coalesce(sum(bytes), 0) FROM ended);
CREATE TRIGGER ended_changed AFTER UPDATE OF finished_at, answer ON upload WHEN NEW.weight <> OLD.weight BEGIN
    INSERT INTO ended VALUES (NEW.device, NEW.weight - OLD.weight)
    ON CONFLICT (device) DO UPDATE SET bytes = bytes + NEW.weight - OLD.weight;
    UPDATE room SET ended = ended + NEW.weight - OLD.weight;
END;
CREATE TRIGGER ended_gone AFTER DELETE ON upload WHEN OLD.weight > 0 BEGIN
    UPDATE ended SET bytes = bytes - OLD.weight WHERE device = OLD.device;
    DELETE FROM ended WHERE device = OLD.device AND bytes = 0;
    UPDATE room SET ended = ended - OLD.weight;
END;
";

/// What format 9 has more than format 8: how many uploads of each device are at their services and have not ended (states below 5). They keep nothing here but their rows.
const AWAY: &str = "
ALTER TABLE holding ADD COLUMN away INTEGER NOT NULL DEFAULT 0;
INSERT INTO holding SELECT device, 0, 0, count(*) FROM upload WHERE payload = 0 AND state < 5 GROUP BY device
    ON CONFLICT (device) DO UPDATE SET away = excluded.away;
DROP TRIGGER holding_new;
DROP TRIGGER holding_let_go;
DROP TRIGGER holding_gone;
CREATE TRIGGER holding_new AFTER INSERT ON upload WHEN NEW.payload = 1 BEGIN
    INSERT INTO holding VALUES (NEW.device, 1, NEW.stored_bytes, 0)
    ON CONFLICT (device) DO UPDATE SET uploads = uploads + 1, bytes = bytes + NEW.stored_bytes;
END;
CREATE TRIGGER holding_let_go AFTER UPDATE OF payload ON upload WHEN NEW.payload = 0 AND OLD.payload = 1 BEGIN
    UPDATE holding SET uploads = uploads - 1, bytes = bytes - OLD.stored_bytes, away = away + (NEW.state < 5) WHERE device = OLD.device;
    DELETE FROM holding WHERE device = OLD.device AND uploads = 0 AND away = 0;
END;
CREATE TRIGGER holding_over AFTER UPDATE OF state ON upload WHEN OLD.payload = 0 AND OLD.state < 5 AND NEW.state >= 5 BEGIN
    UPDATE holding SET away = away - 1 WHERE device = OLD.device;
    DELETE FROM holding WHERE device = OLD.device AND uploads = 0 AND away = 0;
END;
CREATE TRIGGER holding_gone AFTER DELETE ON upload WHEN OLD.payload = 1 OR OLD.state < 5 BEGIN
    UPDATE holding SET uploads = uploads - OLD.payload, bytes = bytes - OLD.payload * OLD.stored_bytes, away = away - (1 - OLD.payload)
    WHERE device = OLD.device;
    DELETE FROM holding WHERE device = OLD.device AND uploads = 0 AND away = 0;
END;
";

/// What format 10 has more than format 9: the tails of resources, in pieces. A resource's row had all of its tail, and each part wrote it anew.
const TAILS: &str = "
CREATE TABLE tail (token BLOB NOT NULL, at INTEGER NOT NULL, octets BLOB NOT NULL, PRIMARY KEY (token, at)) WITHOUT ROWID;
INSERT INTO tail SELECT token, tail_at, tail FROM resource WHERE length(tail) > 0;
ALTER TABLE resource DROP COLUMN tail;
CREATE TRIGGER tail_gone AFTER DELETE ON resource BEGIN
    DELETE FROM tail WHERE token = OLD.token;
END;
";

/// What format 11 has more than format 10: where the bytes of a small upload lie in a segment, and the last epoch of the journal that is committed.
const SEGMENTS: &str = "
ALTER TABLE upload ADD COLUMN segment INTEGER;              -- NULL: it has a file of its own
ALTER TABLE upload ADD COLUMN base INTEGER;                 -- where Z's first byte lies in the segment
CREATE INDEX upload_segment ON upload (segment) WHERE segment IS NOT NULL AND payload = 1;
ALTER TABLE room ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
";
