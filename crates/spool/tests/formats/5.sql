-- What the fifth format had more.
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
