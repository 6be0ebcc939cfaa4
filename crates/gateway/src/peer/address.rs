//! Which addresses are this machine's own, and which its neighbours': [`here`].

use hoop_units::Here;
use if_addrs::{IfAddr, Interface};
use std::io;

/// The addresses of this machine's interfaces and their networks, as they are now: they come and go, so they are asked for at each
/// connection, which costs a tenth of a millisecond.
///
/// # Errors
/// If the operating system does not say.
pub fn here() -> io::Result<Here> {
    let bits = |interface: &Interface| match &interface.addr {
        IfAddr::V4(v4) => v4.prefixlen.into(),
        IfAddr::V6(v6) => v6.prefixlen.into(),
    };
    Ok(Here::of(if_addrs::get_if_addrs()?.iter().map(|interface| (interface.ip(), bits(interface)))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn this_machine_knows_its_own_addresses_and_networks() {
        let here = here().unwrap();
        assert!(here.is_own(IpAddr::from([127, 0, 0, 1])));
        assert!(here.is_near(IpAddr::from([127, 9, 9, 9])), "loopback's network");
    }
}
