//! A disk that has no room, or may not be written.
