-- Format 8: what ended uploads take.
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
