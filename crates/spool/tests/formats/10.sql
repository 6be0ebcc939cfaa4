CREATE TABLE tail (token BLOB NOT NULL, at INTEGER NOT NULL, octets BLOB NOT NULL, PRIMARY KEY (token, at)) WITHOUT ROWID;
INSERT INTO tail SELECT token, tail_at, tail FROM resource WHERE length(tail) > 0;
ALTER TABLE resource DROP COLUMN tail;
CREATE TRIGGER tail_gone AFTER DELETE ON resource BEGIN
    DELETE FROM tail WHERE token = OLD.token;
END;
