//! Which addresses are this machine's own: [`own_addresses`].

use std::io;
use std::net::IpAddr;

/// The addresses of this machine's interfaces, as they are now: they come and go, so they are asked for at each connection, which
/// costs a tenth of a millisecond.
///
/// # Errors
/// If the operating system does not say.
pub fn own_addresses() -> io::Result<Vec<IpAddr>> {
    Ok(if_addrs::get_if_addrs()?.into_iter().map(|interface| interface.ip()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_knows_its_own_addresses() {
        assert!(own_addresses().unwrap().contains(&IpAddr::from([127, 0, 0, 1])));
    }
}
