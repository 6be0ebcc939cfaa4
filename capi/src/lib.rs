//! `libd2tp`: flows as BSD sockets, for programs in C. `capi/include/d2tp.h` is the interface, `capi/README.md` tells how to build, link and port.
//!
//! A descriptor is one end of a pair of Unix sockets, so that `poll`, `epoll`, `read`, `writev` and `sendfile` work on it as on any other. The other end is the library's: a tokio
//! runtime, begun at first use, copies between it and a flow.
//!
//! ```text
//!   program            library (its threads)
//!   ───────            ─────────────────────────────────
//!   fd ═══ pair of Unix sockets ═══ copy ─── FlowStream ─── carriers ─── the other end
//! ```
//!
//! * While a socket connects, its pair is full of bytes that mean nothing, so that it is not writable; they are taken out once the flow is attached (`socket`).
//! * A listening socket is readable when flows wait: each has put one byte into the pair (`backlog`).
//! * When a flow fails, a byte that nobody reads is left in the pair as it is closed: the kernel then reports a reset, and not an end (`copy`).
//!
//! Unsafe code is in `ffi`, for C's pointers and what `fork` and `exit` ask for, and in `descriptor`, since a program's descriptors are numbers.
//!
//! Rooms, each importing only those before it: `lock`, `errors`, `address`, `options`, `descriptor`, `backlog`, `held`, `socket`, `library`, `copy`, `calls`,
//! `ffi`.

mod address;
mod backlog;
mod calls;
mod copy;
mod descriptor;
mod errors;
mod ffi;
mod held;
mod library;
mod lock;
mod options;
mod socket;

pub use ffi::*;
