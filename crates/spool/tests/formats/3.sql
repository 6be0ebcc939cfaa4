-- What the third format had more.
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
