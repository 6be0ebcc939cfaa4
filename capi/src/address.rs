//! A C `sockaddr` of IPv4 or IPv6 as bytes, and back.

use libc::{AF_INET, AF_INET6, c_int};
use nix::errno::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The length of a `sockaddr_in`.
const V4_LEN: usize = 16;

/// The length of a `sockaddr_in6`.
const V6_LEN: usize = 28;

/// The family of an address.
pub fn family(address: &SocketAddr) -> c_int {
    if address.is_ipv4() { AF_INET } else { AF_INET6 }
}

/// The address that means any, port 0.
pub fn unspecified(family: c_int) -> SocketAddr {
    let ip: IpAddr = if family == AF_INET { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    (ip, 0).into()
}

/// Reads a `sockaddr`: family in the machine's order, then as the network has it.
///
/// # Errors
/// `EINVAL` if it is too short, `EAFNOSUPPORT` for other families.
pub fn read(bytes: &[u8]) -> Result<SocketAddr, Errno> {
    let [first, second, port @ ..] = bytes else { return Err(Errno::EINVAL) };
    let family = c_int::from(u16::from_ne_bytes([*first, *second]));
    if family != AF_INET && family != AF_INET6 {
        return Err(Errno::EAFNOSUPPORT);
    }
    let len = if family == AF_INET { V4_LEN } else { V6_LEN };
    if bytes.len() < len {
        return Err(Errno::EINVAL);
    }
    let port = u16::from_be_bytes([port[0], port[1]]);
    let ip: IpAddr = match family {
        AF_INET => take::<4>(bytes, 4).into(),
        _ => take::<16>(bytes, 8).into(),
    };
    Ok((ip, port).into())
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut taken = [0; N];
    taken.copy_from_slice(&bytes[at..at + N]);
    taken
}

/// Writes a `sockaddr`.
pub fn write(address: &SocketAddr) -> Vec<u8> {
    let mut bytes = vec![0; if address.is_ipv4() { V4_LEN } else { V6_LEN }];
    // Families are small numbers.
    bytes[..2].copy_from_slice(&(family(address) as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => bytes[4..8].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => bytes[8..24].copy_from_slice(&ip.octets()),
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_and_each_truncation_is_refused() {
        for text in ["192.0.2.1:80", "[2001:db8::1]:443"] {
            let address: SocketAddr = text.parse().unwrap();
            let bytes = write(&address);
            assert_eq!(read(&bytes), Ok(address));
            for len in 0..bytes.len() {
                assert_eq!(read(&bytes[..len]), Err(Errno::EINVAL), "{len}");
            }
        }
        assert_eq!(read(&[libc::AF_UNIX as u8, 0, 0, 0]), Err(Errno::EAFNOSUPPORT));
    }
}
