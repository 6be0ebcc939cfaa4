//! Durable store of uploads.
