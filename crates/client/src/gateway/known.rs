//! The gateways that this device has met: [`Known`], the file `known_gateways` in the state folder.
//!
//! A line each, oldest first: the [`Place`] (a network, or an origin) and the gateway's name, which follows from its key. The first gateway that shows a key at a
//! place is taken for the one that belongs there; another key is then a change, which its user is told of. Lines may be taken out by hand.

use crate::config::ClientConfig;
use crate::gateway::place::{Place, origin_of};
use crate::private::write_private;
use hoop_seal::signing::GatewayId;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

const NAME: &str = "known_gateways";

/// Lines that are kept, beyond which the oldest are forgotten: more networks than a person is in.
const KNOWN_MAX: usize = 1_000;

/// The file; without a state folder nothing is known, and nothing is kept.
pub(crate) struct Known {
    folder: Option<PathBuf>,
    lines: Vec<(String, GatewayId)>,
}

impl Known {
    /// Reads it. A line that is none is passed over.
    pub(crate) fn read(config: &ClientConfig) -> Self {
        let folder = config.state_dir.clone();
        let text = folder.as_ref().and_then(|folder| std::fs::read_to_string(folder.join(NAME)).ok());
        let line = |line: &str| {
            let (place, name) = line.trim().split_once(' ')?;
            Some((place.to_owned(), name.trim().parse().ok()?))
        };
        let lines = text.iter().flat_map(|text| text.lines()).filter_map(line).collect();
        Self { folder, lines }
    }

    /// Who is known at that place, also by what an earlier version wrote down of it.
    pub(crate) fn at(&self, place: &Place) -> Vec<GatewayId> {
        let mut known = Vec::new();
        let here = self.lines.iter().filter(|(name, _)| place.is_named(name));
        for (_, id) in here {
            if !known.contains(id) {
                known.push(*id);
            }
        }
        known
    }

    /// Who is expected there, of a gateway that was found by looking: who is known at that place; else in any of this device's networks. Whoever
    /// says that the gateway is elsewhere may be anybody on the network of one that is known, also while that one is away.
    pub(crate) fn expected(&self, place: &Place, interfaces: &[(IpAddr, u32)]) -> Vec<GatewayId> {
        let at_place = self.at(place);
        if !at_place.is_empty() {
            return at_place;
        }
        let own = interfaces.iter().map(|(own, _)| *own).filter(|own| !own.is_loopback());
        let mut expected = Vec::new();
        for id in
            own.flat_map(|own| self.at(&Place::of(&origin_of(SocketAddr::new(own.to_canonical(), 1)), interfaces)))
        {
            if !expected.contains(&id) {
                expected.push(id);
            }
        }
        expected
    }

    /// Remembers a gateway there. A failure costs a question the next time.
    pub(crate) fn add(&mut self, place: &Place, id: GatewayId) {
        let line = (place.name().to_owned(), id);
        if self.lines.contains(&line) {
            return;
        }
        self.lines.push(line);
        let beyond = self.lines.len().saturating_sub(KNOWN_MAX);
        self.lines.drain(..beyond);
        let Some(folder) = &self.folder else { return };
        let text: String = self.lines.iter().map(|(place, id)| format!("{place} {id}\n")).collect();
        if let Err(error) = write_private(folder, NAME, text.as_bytes()) {
            tracing::debug!(%error, "cannot remember the gateway's key");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::identity::{Shown, judge};
    use crate::outcome::GatewayIdentity;
    use hoop_seal::signing::GatewayKey;

    #[test]
    fn gateways_are_known_by_place_and_the_oldest_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let config = ClientConfig { state_dir: Some(folder.path().to_owned()), ..ClientConfig::default() };
        let id = |n: u8| GatewayKey::from_seed(&[n; 32]).id();
        let place = |origin: &str, bits| Place::of(&origin.parse().unwrap(), &[(IpAddr::from([192, 0, 2, 9]), bits)]);
        let (home, name) = (place("http://192.0.2.1", 24), place("https://box.example", 24));
        let mut known = Known::read(&config);
        known.add(&home, id(1));
        known.add(&home, id(1));
        known.add(&home, id(2));
        known.add(&name, id(3));
        let again = Known::read(&config);
        assert_eq!((again.at(&home), again.at(&name)), (vec![id(1), id(2)], vec![id(3)]));
        assert_eq!(again.at(&place("http://192.0.3.1", 24)), []);
        let text = std::fs::read_to_string(folder.path().join(NAME)).unwrap();
        std::fs::write(folder.path().join(NAME), format!("garbage\nx y\n{text}")).unwrap();
        assert_eq!(Known::read(&config).lines.len(), 3);
        (0..KNOWN_MAX).for_each(|n| known.lines.push((n.to_string(), id(9))));
        known.add(&place("https://new.example", 24), id(4));
        assert_eq!((known.lines.len(), known.at(&home).len()), (KNOWN_MAX, 0));
        assert_eq!(known.at(&place("https://new.example", 24)), [id(4)]);
    }

    #[test]
    fn a_gateway_in_another_part_of_the_network_is_no_first_one() {
        let folder = tempfile::tempdir().unwrap();
        let config = ClientConfig { state_dir: Some(folder.path().to_owned()), ..ClientConfig::default() };
        let id = |n: u8| GatewayKey::from_seed(&[n; 32]).id();
        let place = |origin: &str| Place::of(&origin.parse().unwrap(), &[(IpAddr::from([10, 1, 2, 3]), 16)]);
        // As an earlier version wrote it.
        std::fs::write(folder.path().join(NAME), format!("10.1.7.0/24 {}\n", id(1))).unwrap();
        let mut known = Known::read(&config);
        let judged = |known: &Known, key| judge(&Shown::Proven(key), &[], &known.at(&place("http://10.1.99.1:4667")));
        let names = vec![id(1).to_string()];
        let changed = GatewayIdentity::Changed { name: id(2).to_string(), known: names };
        assert_eq!(judged(&known, id(2)), Ok(changed.clone()));
        assert_eq!(judged(&known, id(1)), Ok(GatewayIdentity::Known));
        // From its next use on it is known in all of it.
        known.add(&place("http://10.1.7.1:4667"), id(1));
        let text = std::fs::read_to_string(folder.path().join(NAME)).unwrap();
        assert_eq!(text, format!("10.1.7.0/24 {0}\n10.1.0.0/16 {0}\n", id(1)));
        assert_eq!(judged(&Known::read(&config), id(2)), Ok(changed));
    }

    #[test]
    fn who_is_known_in_a_network_of_this_device_is_expected_by_whoever_looks() {
        let folder = tempfile::tempdir().unwrap();
        let config = ClientConfig { state_dir: Some(folder.path().to_owned()), ..ClientConfig::default() };
        let [one, two] = [1, 2].map(|n: u8| GatewayKey::from_seed(&[n; 32]).id());
        let own: [(IpAddr, u32); 3] =
            [([127, 0, 0, 1].into(), 8), ([10, 1, 2, 3].into(), 16), ("fd00::3".parse().unwrap(), 64)];
        let [elsewhere, here] = ["http://198.51.100.9:4667", "http://[fd00::9]:4667"]
            .map(|origin| Place::of(&origin.parse().unwrap(), &own));
        for (known, is_expected) in [
            ("10.1.0.0/16", true),
            ("10.1.7.0/24", true),
            ("fd00::/64", true),
            ("10.2.0.0/16", false),
            ("203.0.113.0/24", false),
            ("127.0.0.1:4667", false),
        ] {
            std::fs::write(folder.path().join(NAME), format!("{known} {one}\n")).unwrap();
            let expected = if is_expected { vec![one] } else { vec![] };
            assert_eq!(Known::read(&config).expected(&elsewhere, &own), expected, "{known}");
        }
        let text = format!("fd00::/64 {two}\n10.1.0.0/16 {one}\n10.1.7.0/24 {one}\n");
        std::fs::write(folder.path().join(NAME), text).unwrap();
        let known = Known::read(&config);
        assert_eq!(known.expected(&elsewhere, &own), [one, two]);
        assert_eq!(known.expected(&here, &own), [two], "there one is known");
        let judged = |id| judge(&Shown::Proven(id), &[], &known.expected(&elsewhere, &own));
        assert_eq!(judged(one), Ok(GatewayIdentity::Known), "the same one, by another address");
        let stranger = GatewayKey::from_seed(&[3; 32]).id();
        assert!(judged(stranger).is_ok_and(|identity| !identity.is_relied_on()), "nothing is left with another");
    }
}
