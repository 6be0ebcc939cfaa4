//! What the kernel knows of a connection, and is told: [`PacedSocket`].

use hoop_units::{Duration, UnixTime};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use tokio::net::TcpStream;

/// How much may wait unsent in the kernel: what a slow line takes in a tenth of a second. What is not there yet can still be decided
/// anew.
const NOTSENT_BYTES: u32 = 16 * 1024;

/// Bytes of a packet that are headers (IPv4 or 6, TCP with timestamps).
pub const HEADER_BYTES: u64 = 52;

/// A connection's socket, held besides whoever uses it.
pub struct PacedSocket(OwnedFd);

/// A connection's counters, since it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// The smoothed round-trip time (RFC 6298), in microseconds.
    pub srtt_us: u32,
    /// Octets of the stream that the other end has.
    pub acked: u64,
    /// Octets of the stream that were sent, those sent again counted again.
    pub sent: u64,
    /// Segments sent and received.
    pub segments_out: u32,
    pub segments_in: u32,
    /// Octets that are not sent yet, and packets on their way.
    pub unsent: u32,
    pub in_flight: u32,
    /// The congestion window, in packets.
    pub window: u32,
}

impl Counters {
    /// What was sent, headers included.
    pub const fn wire_bytes(&self) -> u64 {
        self.sent + self.segments_out as u64 * HEADER_BYTES
    }

    /// Whether it has something to send, or to hear of.
    pub const fn has_more(&self) -> bool {
        self.unsent > 0 || self.in_flight > 0
    }

    /// Whether packets may have left one by one since `before`: Linux keeps half of the window back for a second burst, so that below four
    /// packets each leaves alone. Its acknowledgement then waits at the other end.
    pub const fn is_single_since(&self, before: &Self) -> bool {
        self.window < 4 || (before.window > 0 && before.window < 4)
    }

    /// The round-trip time of what was acknowledged since `before`, undoing the kernel's smoothing: each acknowledgement moves the
    /// smoothed value by an eighth (RFC 6298 §2.3).
    pub fn rtt_since(&self, before: &Self) -> Option<Duration> {
        if self.acked == before.acked || self.srtt_us == 0 {
            return None;
        }
        if before.srtt_us == 0 {
            return Some(Duration::from_micros(self.srtt_us.into()));
        }
        let acknowledgements = self.segments_in.wrapping_sub(before.segments_in).clamp(1, 64);
        let kept = 0.875_f64.powi(acknowledgements.cast_signed());
        let (old, new) = (f64::from(before.srtt_us), f64::from(self.srtt_us));
        let rtt = old + (new - old) / (1.0 - kept);
        Some(Duration::from_micros(rtt.max(1.0) as u64))
    }
}

impl PacedSocket {
    /// The socket of a connection. In the background, it takes losses as plain TCP does (RFC 5681): other ways (BBR) send single
    /// packets, whose acknowledgements the other end delays, and have a mind of their own about rates.
    pub fn of(stream: &TcpStream, background: bool) -> io::Result<Self> {
        let socket = Self(stream.as_fd().try_clone_to_owned()?);
        socket.tune(background)?;
        Ok(socket)
    }
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)] // three calls of the kernel that no crate here wraps
mod system {
    use super::{Counters, NOTSENT_BYTES, PacedSocket, UnixTime};
    use socket2::SockRef;
    use std::io;
    use std::mem::{size_of, zeroed};
    use std::os::fd::AsRawFd as _;

    impl PacedSocket {
        pub(super) fn tune(&self, background: bool) -> io::Result<()> {
            let socket = SockRef::from(&self.0);
            socket.set_tcp_notsent_lowat(NOTSENT_BYTES)?;
            if background {
                socket.set_tcp_congestion(b"reno")?;
            }
            Ok(())
        }

        /// Sends at most so many octets of the stream a second.
        pub fn set_max_rate(&self, octets: u64) -> io::Result<()> {
            // SAFETY: the descriptor is open, and the pointer is to a local of the given size.
            let done = unsafe {
                libc::setsockopt(
                    self.0.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_MAX_PACING_RATE,
                    (&raw const octets).cast(),
                    size_of::<u64>() as libc::socklen_t,
                )
            };
            if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        }

        /// The counters now.
        pub fn counters(&self) -> io::Result<Counters> {
            let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
            // SAFETY: all zero is a valid value of that struct of integers; the kernel writes at most `len` octets into it.
            let info = unsafe {
                let mut info: libc::tcp_info = zeroed();
                let at = (&raw mut info).cast();
                if libc::getsockopt(self.0.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, at, &raw mut len) < 0 {
                    return Err(io::Error::last_os_error());
                }
                info
            };
            Ok(Counters {
                srtt_us: info.tcpi_rtt,
                acked: info.tcpi_bytes_acked,
                sent: info.tcpi_bytes_sent,
                segments_out: info.tcpi_segs_out,
                segments_in: info.tcpi_segs_in,
                unsent: info.tcpi_notsent_bytes,
                in_flight: info.tcpi_unacked,
                window: info.tcpi_snd_cwnd,
            })
        }
    }

    /// Seconds that local time is ahead of UTC at `now`.
    pub fn utc_offset(now: UnixTime) -> i32 {
        let time = now.0.into();
        // SAFETY: all zero is a valid value of that struct; both pointers are to locals.
        let local = unsafe {
            let mut local: libc::tm = zeroed();
            if libc::localtime_r(&raw const time, &raw mut local).is_null() {
                return 0;
            }
            local
        };
        i32::try_from(local.tm_gmtoff).unwrap_or(0)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::{Counters, PacedSocket, UnixTime};
    use std::io;

    impl PacedSocket {
        pub(super) fn tune(&self, _: bool) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub fn set_max_rate(&self, _: u64) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub fn counters(&self) -> io::Result<Counters> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    pub fn utc_offset(_: UnixTime) -> i32 {
        0
    }
}

pub use system::utc_offset;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_smoothing_is_undone() {
        let before = Counters { srtt_us: 30_000, acked: 1_000, segments_in: 10, ..Counters::default() };
        // What RFC 6298 makes of two round trips of 50 and one of 70 ms.
        let smoothed = [50_000.0, 50_000.0, 70_000.0].iter().fold(30_000.0, |srtt, rtt| srtt * 0.875 + rtt * 0.125);
        let after = Counters { srtt_us: smoothed as u32, acked: 4_000, segments_in: 13, ..before };
        let rtt = after.rtt_since(&before).unwrap().as_micros();
        assert!((50_000..70_000).contains(&rtt), "{rtt}");
        let one = Counters { srtt_us: 35_000, acked: 2_000, segments_in: 11, ..before };
        assert_eq!(one.rtt_since(&before), Some(Duration::from_millis(70)));
        assert_eq!(Counters { segments_in: 11, ..before }.rtt_since(&before), None, "nothing was acknowledged");
    }
}
