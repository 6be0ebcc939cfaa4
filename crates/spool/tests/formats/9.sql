-- Format 9: uploads at their services, by device.
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
