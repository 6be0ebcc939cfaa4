//! A link's end: a TAP device, its address and its host's routes.
//!
//! TAP rather than TUN, since a TUN device is a point-to-point interface, over which libraries for multicast DNS do not
//! speak. There is no ARP: the devices are told to do without (`IFF_NOARP`), then address every frame to themselves,
//! and both ends of a link have the same hardware address. So what passes the link is IPv4 and nothing else.

use crate::enter::TUN_DEVICE;
use crate::plan::{PREFIX_LENGTH, Route};
use libc::{c_char, c_int, c_short, c_ulong, ifreq, rtentry, sockaddr};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Bytes of a frame before its IP packet (Ethernet II: two hardware addresses and a type).
pub(crate) const ETHERNET_HEADER_BYTES: usize = 14;

/// Packets that the kernel holds for us until the link's thread comes: what 64 KiB bursts of several TCP connections
/// may bring between two of its turns. The queue proper is the simulated link's.
const TX_QUEUE_PACKETS: c_int = 1_000;

/// How an end is to be.
pub(crate) struct EndConfig<'a> {
    pub(crate) name: &'a str,
    pub(crate) address: Ipv4Addr,
    pub(crate) mtu: u32,
    /// Tells links apart; both ends have the same.
    pub(crate) hardware_address: [u8; 6],
}

/// Makes the TAP device in the calling thread's network namespace, with its address, up. It lives as long as the file.
pub(crate) fn create(end: &EndConfig<'_>) -> io::Result<File> {
    let tap = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(TUN_DEVICE)?;
    let mut request = named(end.name);
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as c_short;
    ioctl(&tap, libc::TUNSETIFF as c_ulong, &mut request)?;

    let control = control_socket()?;
    let set = |code: c_ulong, field: &dyn Fn(&mut ifreq)| {
        let mut request = named(end.name);
        field(&mut request);
        ioctl(&control, code, &mut request)
    };
    set(libc::SIOCSIFHWADDR, &|request| {
        request.ifr_ifru.ifru_hwaddr = hardware(end.hardware_address);
    })?;
    set(libc::SIOCSIFMTU, &|request| request.ifr_ifru.ifru_mtu = end.mtu as c_int)?;
    match set(libc::SIOCSIFTXQLEN, &|request| request.ifr_ifru.ifru_metric = TX_QUEUE_PACKETS) {
        // The kernel reserves this one to the machine's root; in a user namespace the default, 500, must do.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        result => result?,
    }
    set(libc::SIOCSIFADDR, &|request| request.ifr_ifru.ifru_addr = internet(end.address))?;
    let mask = Ipv4Addr::from_bits(u32::MAX << (32 - PREFIX_LENGTH));
    set(libc::SIOCSIFNETMASK, &|request| request.ifr_ifru.ifru_netmask = internet(mask))?;
    let flags = libc::IFF_UP | libc::IFF_RUNNING | libc::IFF_BROADCAST | libc::IFF_MULTICAST | libc::IFF_NOARP;
    set(libc::SIOCSIFFLAGS, &|request| request.ifr_ifru.ifru_flags = flags as c_short)?;
    Ok(tap)
}

/// Brings the loopback device of the calling thread's network namespace up.
pub(crate) fn raise_loopback() -> io::Result<()> {
    let mut request = named("lo");
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING | libc::IFF_LOOPBACK) as c_short;
    ioctl(&control_socket()?, libc::SIOCSIFFLAGS as c_ulong, &mut request)
}

/// Adds a route in the calling thread's network namespace, by the device with this name.
pub(crate) fn add_route(route: &Route, device: &str) -> io::Result<()> {
    add_entry(route.to, Ipv4Addr::BROADCAST, route.gateway, route.metric, device)
}

/// Adds a route for multicast by the device with this name, for programs that do not choose an interface.
pub(crate) fn add_multicast_route(metric: u16, device: &str) -> io::Result<()> {
    add_entry(Ipv4Addr::new(224, 0, 0, 0), Ipv4Addr::new(240, 0, 0, 0), None, metric, device)
}

fn add_entry(to: Ipv4Addr, mask: Ipv4Addr, gateway: Option<Ipv4Addr>, metric: u16, device: &str) -> io::Result<()> {
    let device = CString::new(device)?;
    // SAFETY: all-zero bytes are a valid `rtentry`: numbers, addresses, and a null pointer for the device.
    #[allow(unsafe_code)]
    let mut entry: rtentry = unsafe { std::mem::zeroed() };
    entry.rt_dst = internet(to);
    entry.rt_genmask = internet(mask);
    entry.rt_gateway = internet(gateway.unwrap_or(Ipv4Addr::UNSPECIFIED));
    let host = if mask == Ipv4Addr::BROADCAST { libc::RTF_HOST } else { 0 };
    let via = if gateway.is_some() { libc::RTF_GATEWAY } else { 0 };
    entry.rt_flags = (libc::RTF_UP | host | via) as _;
    // The kernel takes one off again: its `rtentry_to_fib_config`.
    entry.rt_metric = (metric + 1) as c_short;
    entry.rt_dev = device.as_ptr().cast_mut();
    ioctl(&control_socket()?, libc::SIOCADDRT as c_ulong, &mut entry)
}

fn control_socket() -> io::Result<OwnedFd> {
    Ok(socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?)
}

fn named(name: &str) -> ifreq {
    // SAFETY: all-zero bytes are a valid `ifreq`: an empty name and a union of numbers and addresses.
    #[allow(unsafe_code)]
    let mut request: ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from as c_char;
    }
    request
}

/// A `sockaddr_in` in the clothes of a `sockaddr`: family, port (zero), address in network order.
fn internet(address: Ipv4Addr) -> sockaddr {
    let mut data = [0; 14];
    for (to, from) in data[2..6].iter_mut().zip(address.octets()) {
        *to = from as c_char;
    }
    sockaddr { sa_family: libc::AF_INET as _, sa_data: data }
}

fn hardware(address: [u8; 6]) -> sockaddr {
    let mut data = [0; 14];
    for (to, from) in data.iter_mut().zip(address) {
        *to = from as c_char;
    }
    sockaddr { sa_family: libc::ARPHRD_ETHER as _, sa_data: data }
}

/// One of the requests above, each of which reads and writes no more than the structure that it is given with.
fn ioctl<T>(file: &impl AsRawFd, code: c_ulong, argument: &mut T) -> io::Result<()> {
    // SAFETY: the descriptor is open while `file` is borrowed, and the argument is the structure that netdevice(7) and
    // the kernel's tun documentation name for the code.
    #[allow(unsafe_code)]
    let result = unsafe { libc::ioctl(file.as_raw_fd(), code as _, std::ptr::from_mut(argument)) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
