-- What the seventh format had less.
DROP INDEX upload_due_send;
DROP INDEX upload_due_small;
DROP INDEX upload_due_ask;
