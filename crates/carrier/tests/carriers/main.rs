//! Carriers over real sockets on loopback.

mod common;
mod dialer;
mod lanes;
mod quic;
mod websocket;
