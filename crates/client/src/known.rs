//! The gateways that this device has met: [`Known`], the file `known_gateways` in the state folder.
//!
//! A line each, oldest first: the place (a network, or an origin) and the gateway's name, which follows from its key. The first gateway that shows a key at a
//! place is taken for the one that belongs there; another key is then a change, which its user is told of. Lines may be taken out by hand.

use crate::config::ClientConfig;
use crate::store::write_private;
use hoop_seal::signing::GatewayId;
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

    /// Who is known at that place.
    pub(crate) fn at(&self, place: &str) -> Vec<GatewayId> {
        self.lines.iter().filter(|(known, _)| known == place).map(|(_, id)| *id).collect()
    }

    /// Remembers a gateway there. A failure costs a question the next time.
    pub(crate) fn add(&mut self, place: &str, id: GatewayId) {
        if self.at(place).contains(&id) {
            return;
        }
        self.lines.push((place.to_owned(), id));
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
    use hoop_seal::signing::GatewayKey;

    #[test]
    fn gateways_are_known_by_place_through_the_file_and_the_oldest_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let config = ClientConfig { state_dir: Some(folder.path().to_owned()), ..ClientConfig::default() };
        let id = |n: u8| GatewayKey::from_seed(&[n; 32]).id();
        let mut known = Known::read(&config);
        known.add("192.0.2.0/24", id(1));
        known.add("192.0.2.0/24", id(1));
        known.add("192.0.2.0/24", id(2));
        known.add("box.example", id(3));
        let again = Known::read(&config);
        assert_eq!((again.at("192.0.2.0/24"), again.at("box.example")), (vec![id(1), id(2)], vec![id(3)]));
        assert_eq!(again.at("192.0.3.0/24"), []);
        let text = std::fs::read_to_string(folder.path().join(NAME)).unwrap();
        std::fs::write(folder.path().join(NAME), format!("garbage\nx y\n{text}")).unwrap();
        assert_eq!(Known::read(&config).lines.len(), 3);
        (0..KNOWN_MAX).for_each(|n| known.lines.push((n.to_string(), id(9))));
        known.add("new", id(4));
        assert_eq!((known.lines.len(), known.at("192.0.2.0/24").len(), known.at("new").len()), (KNOWN_MAX, 0, 1));
    }
}
