//! Who pays for the room of an upload: [`Payer`]. Pure.
//!
//! "Paying" means that the upload counts against a quota. A user whom the application has named pays. Anybody can make
//! up cookies, so an anonymous upload is paid for by the address that fetched its ticket. Before record 0 has come, nobody knows whose an upload is, and the sender's address
//! pays.

use crate::model::{Credentials, Payer};
use crate::policy::Policy;
use hoop_units::AddressKey;
use std::net::{IpAddr, Ipv6Addr};

/// Stands where a `Cookie` does in the MAC over credentials. No `Cookie` has a NUL.
const ADDRESS_DOMAIN: &[u8] = b"\0address";

impl Payer {
    /// Who pays for an upload with these credentials in its token.
    pub fn of(policy: &Policy, credentials: &Credentials) -> Self {
        let at = || Self::at(policy, credentials.address.unwrap_or(Ipv6Addr::UNSPECIFIED.into()));
        credentials.user.map_or_else(at, Self::Owner)
    }

    /// The payer at that address.
    pub fn at(policy: &Policy, address: IpAddr) -> Self {
        let device = AddressKey::from_ip(address);
        let tag = policy.keys.owner_tags(ADDRESS_DOMAIN, device.as_bytes()).next();
        Self::Address(tag.expect("a keyring has a key"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::rules_file::Routes;
    use hoop_seal::{Keyring, KwsId, ServiceKey};

    fn policy() -> Policy {
        let keys = Keyring::new(ServiceKey::new(KwsId([1; 4]), [2; 32]));
        Policy { keys, origin: "https://photos.example".into(), max_bytes: 1, routes: Routes::default() }
    }

    #[test]
    fn only_whom_the_application_names_pays_by_name() {
        let address: IpAddr = [192, 0, 2, 7].into();
        let cookie = Some("session=made-up".to_owned());
        let mut credentials =
            Credentials { expires: 1, address: Some(address), cookie, authorization: None, user: None };
        let policy = policy();
        assert_eq!(Payer::of(&policy, &credentials), Payer::at(&policy, address));
        credentials.user = Some([7; 16]);
        assert_eq!(Payer::of(&policy, &credentials), Payer::Owner([7; 16]));
    }

    #[test]
    fn a_household_of_ipv6_is_one_payer() {
        let at = |address: &str| Payer::at(&policy(), address.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:2"));
        assert_eq!(at("192.0.2.7"), at("::ffff:192.0.2.7"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
    }
}
