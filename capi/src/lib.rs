//! `libd2tp`: flows as BSD sockets, for programs in C. `capi/include/d2tp.h` is the interface, `capi/README.md` tells how to build, link and port.
//!
//! A descriptor is one end of a pair of Unix sockets, so that `poll`, `epoll`, `read`, `writev` and `sendfile` work on it as on any other. The other end is the library's: a tokio
//! runtime, begun at first use, copies between it and a flow.
//!
//! ```text
//!   program            library (its threads)
//!   ───────            ─────────────────────────────────
//!   fd ═══ pair of Unix sockets ═══ carry ─── FlowStream ─── carriers ─── the other end
//! ```
//!
//! * While a socket connects, its pair is full of octets that mean nothing, so that it is not writable; they are taken out once the flow is attached (`socket`).
//! * A listening socket is readable when flows wait: each has put one octet into the pair (`listener`).
//! * When a flow fails, an octet that nobody reads is left in the pair as it is closed: the kernel then reports a reset, and not an end (`carry`).
//!
//! Unsafe code is in `ffi` alone: C's pointers, and what `fork` and `exit` ask for.

mod address;
mod carry;
mod ffi;
mod library;
mod listener;
mod options;
mod socket;

pub use ffi::*;
