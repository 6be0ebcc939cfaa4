-- What the sixth format had more.
CREATE TABLE sums (upload INTEGER NOT NULL, part INTEGER NOT NULL, sums BLOB NOT NULL, PRIMARY KEY (upload, part)) WITHOUT ROWID;
CREATE TRIGGER sums_let_go AFTER UPDATE OF payload ON upload WHEN NEW.payload = 0 AND OLD.payload = 1 BEGIN
    DELETE FROM sums WHERE upload = OLD.seq;
END;
CREATE TRIGGER sums_gone AFTER DELETE ON upload BEGIN
    DELETE FROM sums WHERE upload = OLD.seq;
END;
