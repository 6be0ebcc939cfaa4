//! The error numbers that failures make: for I/O, flows, introductions and links.

use hoop_endpoint::{FlowError, ended};
use hoop_relay::{IntroductionError, LinkError, codes};
use nix::errno::Errno;
use std::io;

/// The error number of an I/O error, or another.
pub fn io_number(error: &io::Error, other: Errno) -> Errno {
    error.raw_os_error().map_or(other, Errno::from_raw)
}

/// The number that an application's reset makes, or the end of a flow.
pub fn flow_number(error: FlowError) -> Errno {
    match error {
        FlowError::Ended(ended::FINISHED) => Errno::EPIPE,
        FlowError::Ended(ended::EXPIRED) => Errno::ETIMEDOUT,
        FlowError::Ended(codes::FORBIDDEN) => Errno::EACCES,
        FlowError::Ended(codes::UNKNOWN_NAME) => Errno::EHOSTUNREACH,
        FlowError::Ended(codes::UNREACHABLE | codes::MALFORMED) | FlowError::Refused(_) => Errno::ECONNREFUSED,
        FlowError::Ended(_) => Errno::ECONNRESET,
        FlowError::Reset(_) => Errno::ECONNABORTED,
        FlowError::Gone => Errno::ENETDOWN,
    }
}

/// The number of an error with an introduction.
pub fn introduction_number(error: &IntroductionError) -> Errno {
    match error {
        IntroductionError::File { source, .. } => io_number(source, Errno::EINVAL),
        IntroductionError::Form { .. }
        | IntroductionError::Kind { .. }
        | IntroductionError::Only { .. }
        | IntroductionError::Server(_)
        | IntroductionError::Front(_)
        | IntroductionError::Certificate(_)
        | IntroductionError::Misfit { .. }
        | IntroductionError::Name { .. }
        | IntroductionError::Writable { .. }
        | IntroductionError::Member(_) => Errno::EINVAL,
        IntroductionError::Rng => Errno::EAGAIN,
    }
}

/// The number of an error with a link.
pub fn link_number(error: &LinkError) -> Errno {
    match error {
        LinkError::Introduction(error) => introduction_number(error),
        LinkError::Tls(_) => Errno::EINVAL,
        // It was there when it was named.
        LinkError::NoInterface(_) => Errno::ENODEV,
        LinkError::NetworkPath { .. } => Errno::ENETUNREACH,
    }
}
