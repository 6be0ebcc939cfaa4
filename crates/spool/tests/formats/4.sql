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
