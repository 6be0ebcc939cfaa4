//! What the crate promises, from outside: what it writes it reads, what is wrong it refuses, and how small heads become.

mod refusals;
mod round_trips;
mod sizes;
mod vectors;

use hoop_head::{HeadError, encode_request, encode_response};

/// The section of a request.
fn request(head: http::request::Builder) -> Result<Vec<u8>, HeadError> {
    let mut section = Vec::new();
    encode_request(&head.body(()).unwrap().into_parts().0, &mut section).map(|()| section)
}

/// The section of a response.
fn response(head: http::response::Builder) -> Result<Vec<u8>, HeadError> {
    let mut section = Vec::new();
    encode_response(&head.body(()).unwrap().into_parts().0, &mut section).map(|()| section)
}

/// A section of these fields as literals, valid or not: names below seven bytes and values below 127.
fn literal(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut section = Vec::new();
    for (name, value) in fields {
        match name.len() {
            len @ ..7 => section.push(0x20 | len as u8),
            len => section.extend([0x27, len as u8 - 7]),
        }
        section.extend_from_slice(name);
        assert!(value.len() < 127);
        section.push(value.len() as u8);
        section.extend_from_slice(value);
    }
    section
}
