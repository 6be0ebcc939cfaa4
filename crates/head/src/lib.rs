//! Compact heads of HTTP requests and responses (`docs/head.md` has the format).
//!
//! A head is a field section of QPACK (RFC 9204 §4.5) without its two-byte prefix and without a dynamic table. It refers to a fixed table
//! only, so each head stands alone: nothing is kept from one to the next, and the length of one says nothing about another.
//!
//! Everything here is pure. What is written by one of the two `encode` functions is read the same by its `decode`. What is read is a
//! valid head of HTTP/3 (RFC 9114 §4.2 and §4.3), within [`HEAD_MAX`] and [`FIELDS_MAX`]. Any other bytes are a [`HeadError`] and never a
//! panic.
//!
//! From below: `date`, `error`, `huffman` and `table` know no fields; `line` is one field line; `rules` is what HTTP permits; `section` is a list
//! of lines; `message` makes requests and responses of it; `stream` puts the length in front.
#![no_std]

extern crate alloc;

mod date;
mod error;
mod huffman;
mod line;
mod message;
mod rules;
mod section;
mod stream;
mod table;

pub use error::{FIELDS_MAX, HEAD_MAX, HeadError};
pub use message::{decode_request, decode_response, encode_request, encode_response};
pub use stream::{frame, split};

/// The example of the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
