-- What the second format had more.
CREATE INDEX upload_early ON upload (id) WHERE prelude = x'';
