//! What `getsockopt` and `setsockopt` know: [`Options`]. Pure but for the time, which is given.

use hoop_endpoint::FlowOptions;
use hoop_units::UnixTime;
use libc::c_int;
use nix::errno::Errno;
use std::collections::BTreeMap;

/// Numbers of the options that sockets do not have; at `SOL_SOCKET`. As in `d2tp.h`.
pub mod number {
    use libc::c_int;
    /// Seconds from now (int).
    pub const DEADLINE: c_int = 0x4401;
    /// How many bytes this end will send (64 bits).
    pub const ESIZE: c_int = 0x4402;
    /// High and low (two times 32 bits).
    pub const RCVBUFTH: c_int = 0x4403;
    /// Whether no other network than Wi-Fi is used (int).
    pub const WIFIONLY: c_int = 0x4404;
    /// The interface that is used (a name).
    pub const BINDTODEVICE: c_int = 0x4405;
}

/// Options that mean nothing to a flow: what is set is remembered, as programs check it. With what they are by default.
const REMEMBERED: [(c_int, c_int, c_int); 15] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 0),
    (libc::SOL_SOCKET, libc::SO_REUSEADDR, 0),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT, 0),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE, 0),
    (libc::SOL_SOCKET, libc::SO_PRIORITY, 0),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1),
    (libc::IPPROTO_TCP, libc::TCP_CORK, 0),
    (libc::IPPROTO_TCP, libc::TCP_QUICKACK, 1),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 7_200),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 75),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 9),
    (libc::IPPROTO_IP, libc::IP_TOS, 0),
    (libc::IPPROTO_IP, libc::IP_TTL, 64),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, 0),
];

/// The longest name of an interface, as the kernel has it.
const INTERFACE_MAX: usize = 15;

/// The least and the most that `SO_RCVBUF` and `SO_SNDBUF` make of what is asked for, as the kernel has bounds: a frame, and what a fast long path needs.
const BUFFER_MIN: u32 = 4 * 1024;
const BUFFER_MAX: u32 = 64 * 1024 * 1024;

/// What a socket was told.
#[derive(Clone, Debug)]
pub struct Options {
    /// When its flow should be done.
    pub deadline: Option<UnixTime>,
    /// How many bytes this end will send; 0: not said.
    pub size: u64,
    /// How many bytes wait to be read, at most.
    pub high: u32,
    /// To how few that must fall before more is asked for.
    pub low: Option<u32>,
    send_buffer: u32,
    /// No other network than Wi-Fi.
    pub wifi_only: bool,
    /// The interface that is used.
    pub interface: Option<String>,
    /// `l_onoff`, `l_linger`.
    linger: (c_int, c_int),
    /// How long `connect` waits, in milliseconds; 0: as long as it does by default.
    pub user_timeout_ms: u32,
    remembered: BTreeMap<(c_int, c_int), c_int>,
}

impl Default for Options {
    fn default() -> Self {
        let flow = FlowOptions::default();
        let buffer = |bytes| u32::try_from(bytes).unwrap_or(BUFFER_MAX);
        Self {
            deadline: None,
            size: 0,
            high: buffer(flow.window),
            low: None,
            send_buffer: buffer(flow.send_buffer),
            wifi_only: false,
            interface: None,
            linger: (0, 0),
            user_timeout_ms: 0,
            remembered: REMEMBERED.iter().map(|(level, name, value)| ((*level, *name), *value)).collect(),
        }
    }
}

/// What has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Nothing that a flow is told.
    Nothing,
    /// Its deadline.
    Deadline,
    /// Its size.
    Size,
    /// Its window.
    Window,
    /// The way it leaves by: only before it is opened.
    NetworkPath,
}

fn int(bytes: &[u8]) -> Result<c_int, Errno> {
    bytes.first_chunk().map(|bytes| c_int::from_ne_bytes(*bytes)).ok_or(Errno::EINVAL)
}

fn positive(bytes: &[u8]) -> Result<u32, Errno> {
    u32::try_from(int(bytes)?).map_err(|_| Errno::EINVAL)
}

fn two(bytes: &[u8]) -> Result<(u32, u32), Errno> {
    let bytes: &[u8; 8] = bytes.first_chunk().ok_or(Errno::EINVAL)?;
    let number = |at| positive_or_not(bytes, at);
    Ok((number(0), number(4)))
}

fn positive_or_not(bytes: &[u8; 8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl Options {
    /// Sets an option.
    ///
    /// # Errors
    /// `EINVAL` for a value that cannot be, `ENOPROTOOPT` for what there is not.
    pub fn set(&mut self, level: c_int, name: c_int, value: &[u8], now: UnixTime) -> Result<Change, Errno> {
        if let Some(remembered) = self.remembered.get_mut(&(level, name)) {
            *remembered = int(value)?;
            return Ok(Change::Nothing);
        }
        match (level, name) {
            (libc::SOL_SOCKET, number::DEADLINE) => {
                let seconds = positive(value)?;
                self.deadline = (seconds > 0).then(|| now.plus_secs(seconds));
                Ok(Change::Deadline)
            }
            (libc::SOL_SOCKET, number::ESIZE) => {
                self.size = u64::from_ne_bytes(*value.first_chunk().ok_or(Errno::EINVAL)?);
                Ok(Change::Size)
            }
            (libc::SOL_SOCKET, number::RCVBUFTH) => {
                let (high, low) = two(value)?;
                if low >= high {
                    return Err(Errno::EINVAL);
                }
                (self.high, self.low) = (high, Some(low));
                Ok(Change::Window)
            }
            (libc::SOL_SOCKET, number::WIFIONLY) => {
                self.wifi_only = int(value)? != 0;
                Ok(Change::NetworkPath)
            }
            (libc::SOL_SOCKET, number::BINDTODEVICE | libc::SO_BINDTODEVICE) => {
                let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                let name = std::str::from_utf8(name).map_err(|_| Errno::EINVAL)?;
                if name.len() > INTERFACE_MAX {
                    return Err(Errno::EINVAL);
                }
                self.interface = Some(name.to_owned()).filter(|name| !name.is_empty());
                Ok(Change::NetworkPath)
            }
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => {
                (self.high, self.low) = (positive(value)?.clamp(BUFFER_MIN, BUFFER_MAX), None);
                Ok(Change::Window)
            }
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => {
                self.send_buffer = positive(value)?.clamp(BUFFER_MIN, BUFFER_MAX);
                Ok(Change::Nothing)
            }
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let (on, seconds) = two(value)?;
                self.linger = (on as c_int, seconds as c_int);
                Ok(Change::Nothing)
            }
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => {
                self.user_timeout_ms = positive(value)?;
                Ok(Change::Nothing)
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    /// What an option is.
    ///
    /// # Errors
    /// `ENOPROTOOPT` for what there is not.
    pub fn get(&self, level: c_int, name: c_int, now: UnixTime) -> Result<Vec<u8>, Errno> {
        if let Some(remembered) = self.remembered.get(&(level, name)) {
            return Ok(remembered.to_ne_bytes().into());
        }
        let two = |first: u32, second: u32| [first.to_ne_bytes(), second.to_ne_bytes()].concat();
        let left = || self.deadline.map_or(0, |deadline| deadline.since(now));
        match (level, name) {
            (libc::SOL_SOCKET, number::DEADLINE) => Ok(left().to_ne_bytes().into()),
            (libc::SOL_SOCKET, number::ESIZE) => Ok(self.size.to_ne_bytes().into()),
            (libc::SOL_SOCKET, number::RCVBUFTH) => Ok(two(self.high, self.low.unwrap_or(self.high))),
            (libc::SOL_SOCKET, number::WIFIONLY) => Ok(c_int::from(self.wifi_only).to_ne_bytes().into()),
            (libc::SOL_SOCKET, number::BINDTODEVICE | libc::SO_BINDTODEVICE) => {
                let mut name = self.interface.clone().unwrap_or_default().into_bytes();
                name.push(0);
                Ok(name)
            }
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => Ok(self.high.to_ne_bytes().into()),
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => Ok(self.send_buffer.to_ne_bytes().into()),
            (libc::SOL_SOCKET, libc::SO_LINGER) => Ok(two(self.linger.0 as u32, self.linger.1 as u32)),
            (libc::SOL_SOCKET, libc::SO_TYPE) => Ok(libc::SOCK_STREAM.to_ne_bytes().into()),
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => Ok(self.user_timeout_ms.to_ne_bytes().into()),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    /// How many seconds `close` waits for delivery; None: not at all. 0: what is under way is given up.
    pub fn linger(&self) -> Option<u32> {
        (self.linger.0 != 0).then(|| u32::try_from(self.linger.1).unwrap_or(0))
    }

    /// What a flow is opened with.
    pub fn flow(&self) -> FlowOptions {
        FlowOptions {
            deadline: self.deadline,
            size: Some(self.size).filter(|size| *size > 0),
            window: self.high.into(),
            low: self.low.map(u64::from),
            send_buffer: self.send_buffer.into(),
            ..FlowOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixTime = UnixTime(1_000);

    #[test]
    fn what_is_set_is_found_again_and_what_cannot_be_is_refused() {
        let mut options = Options::default();
        let int = |value: c_int| value.to_ne_bytes();
        assert_eq!(options.set(libc::SOL_SOCKET, number::DEADLINE, &int(60), NOW), Ok(Change::Deadline));
        assert_eq!(options.deadline, Some(UnixTime(1_060)));
        assert_eq!(options.get(libc::SOL_SOCKET, number::DEADLINE, UnixTime(1_010)), Ok(int(50).into()));
        assert_eq!(options.set(libc::SOL_SOCKET, number::DEADLINE, &int(-1), NOW), Err(Errno::EINVAL));
        assert_eq!(options.set(libc::SOL_SOCKET, number::DEADLINE, &[0; 3], NOW), Err(Errno::EINVAL));
        let size = (5_u64 << 32).to_ne_bytes();
        assert_eq!(options.set(libc::SOL_SOCKET, number::ESIZE, &size, NOW), Ok(Change::Size));
        assert_eq!(options.flow().size, Some(5 << 32));
        let thresholds = |high: u32, low: u32| [high.to_ne_bytes(), low.to_ne_bytes()].concat();
        for (high, low) in [(0, 0), (10, 10), (10, 11)] {
            let refused = options.set(libc::SOL_SOCKET, number::RCVBUFTH, &thresholds(high, low), NOW);
            assert_eq!(refused, Err(Errno::EINVAL), "{high} {low}");
        }
        assert_eq!(options.set(libc::SOL_SOCKET, number::RCVBUFTH, &thresholds(10, 9), NOW), Ok(Change::Window));
        assert_eq!((options.flow().window, options.flow().low), (10, Some(9)));
        assert_eq!(options.set(libc::SOL_SOCKET, number::BINDTODEVICE, b"wlan0\0rest", NOW), Ok(Change::NetworkPath));
        assert_eq!(options.interface.as_deref(), Some("wlan0"));
        assert_eq!(options.set(libc::SOL_SOCKET, number::BINDTODEVICE, &[b'x'; 16], NOW), Err(Errno::EINVAL));
        assert_eq!(options.set(libc::IPPROTO_TCP, libc::TCP_NODELAY, &int(0), NOW), Ok(Change::Nothing));
        assert_eq!(options.get(libc::IPPROTO_TCP, libc::TCP_NODELAY, NOW), Ok(int(0).into()));
        assert_eq!(options.set(libc::SOL_SOCKET, 0x4FFF, &int(1), NOW), Err(Errno::ENOPROTOOPT));
        assert_eq!(options.get(libc::SOL_SOCKET, 0x4FFF, NOW), Err(Errno::ENOPROTOOPT));
    }
}
