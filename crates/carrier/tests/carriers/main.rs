//! Carriers over real sockets on loopback.

mod common;
mod lanes;
mod quic;
mod websocket;
