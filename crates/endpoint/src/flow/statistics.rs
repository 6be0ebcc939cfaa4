//! What is told of a flow: its events, and what is counted of each network. [`Statistics`].

use super::lanes::LaneEntry;
use crate::options::{FlowEvent, Network, NetworkStats};
use hoop_units::Timestamp;
use tokio::sync::broadcast;

/// Events that a subscriber may lag behind before it misses the oldest.
const EVENTS_MAX: usize = 32;

/// Networks that are counted apart; more are counted with the last. Devices have fewer.
const NETWORKS_MAX: usize = 16;

/// What is told of a flow.
#[derive(Clone, Default, Debug)]
pub(crate) struct Statistics {
    events: Option<broadcast::Sender<FlowEvent>>,
    networks: Vec<(Network, NetworkStats)>,
}

impl Statistics {
    /// What happens from now on.
    pub(super) fn subscribe(&mut self) -> broadcast::Receiver<FlowEvent> {
        self.events.get_or_insert_with(|| broadcast::channel(EVENTS_MAX).0).subscribe()
    }

    /// Tells what has happened.
    pub(crate) fn tell(&self, event: FlowEvent) {
        if let Some(events) = &self.events {
            // Nobody may be listening any more.
            let _ = events.send(event);
        }
    }

    /// What is counted of a network.
    pub(super) fn counted(&mut self, network: &Network) -> &mut NetworkStats {
        let at = match self.networks.iter().position(|(known, _)| known == network) {
            Some(at) => at,
            None if self.networks.len() < NETWORKS_MAX => {
                self.networks.push((network.clone(), NetworkStats::default()));
                self.networks.len() - 1
            }
            None => NETWORKS_MAX - 1,
        };
        &mut self.networks[at].1
    }

    /// Counts for how long a lane was attached.
    pub(super) fn add_attached(&mut self, entry: &LaneEntry, now: Timestamp) {
        if let Some(up) = entry.up {
            self.counted(&entry.on.network).attached += now.since(up);
        }
    }

    /// What was counted, with the lanes that there are.
    pub(super) fn networks<'a>(
        &self,
        lanes: impl Iterator<Item = &'a LaneEntry>,
        now: Timestamp,
    ) -> Vec<(Network, NetworkStats)> {
        let mut counted = Self { events: None, networks: self.networks.clone() };
        lanes.for_each(|entry| counted.add_attached(entry, now));
        counted.networks
    }
}
