//! How flows ended: [`Ends`].

use alloc::collections::{BTreeMap, BTreeSet};
use core::hash::BuildHasher;
use hashbrown::HashMap;
use hoop_flow::{DeviceId, FlowName};
use hoop_units::UnixTime;

/// Remembers how the last flows ended, for some time: no more than so many, and of one device no more than its share, so that none pushes out what is remembered of others.
#[derive(Debug)]
pub struct Ends<V, S> {
    known: HashMap<FlowName, (V, u64), S>,
    /// In the order in which they ended.
    order: BTreeMap<u64, (FlowName, UnixTime)>,
    /// The same for each device.
    of_host: BTreeSet<(DeviceId, u64)>,
    counts: HashMap<DeviceId, usize, S>,
    next: u64,
    most: usize,
    most_of_host: usize,
    secs: u32,
}

impl<V, S: BuildHasher + Clone> Ends<V, S> {
    /// Of `most` flows, of which `most_of_host` are of one device, for so many seconds each. The oldest are forgotten first. Names are outside input: `hasher` is one that
    /// nobody can foresee.
    pub fn new(most: usize, most_of_host: usize, secs: u32, hasher: S) -> Self {
        Self {
            known: HashMap::with_hasher(hasher.clone()),
            order: BTreeMap::new(),
            of_host: BTreeSet::new(),
            counts: HashMap::with_hasher(hasher),
            next: 0,
            most,
            most_of_host,
            secs,
        }
    }

    /// How a flow ended, if that is known.
    pub fn get(&self, name: FlowName) -> Option<&V> {
        self.known.get(&name).map(|(how, _)| how)
    }

    /// Of how many flows it is known.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether it is known of none.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// A flow ended in this way.
    pub fn insert(&mut self, name: FlowName, how: V, at: UnixTime) {
        self.remove(name);
        if self.most == 0 || self.most_of_host == 0 {
            return;
        }
        if self.counts.get(&name.device).is_some_and(|count| *count >= self.most_of_host) {
            let oldest = self.of_host.range((name.device, 0)..).next().map(|(_, number)| *number);
            self.forget(oldest);
        }
        if self.known.len() >= self.most {
            let oldest = self.order.keys().next().copied();
            self.forget(oldest);
        }
        let number = self.next;
        self.next += 1;
        self.known.insert(name, (how, number));
        self.order.insert(number, (name, at));
        self.of_host.insert((name.device, number));
        *self.counts.entry(name.device).or_default() += 1;
    }

    /// There is such a flow again.
    pub fn remove(&mut self, name: FlowName) {
        // Making up a hash takes longer than the rest.
        if self.known.is_empty() {
            return;
        }
        let Some((_, number)) = self.known.remove(&name) else { return };
        self.order.remove(&number);
        self.of_host.remove(&(name.device, number));
        if let Some(count) = self.counts.get_mut(&name.device) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&name.device);
            }
        }
    }

    /// Forgets what has been known for long enough.
    pub fn forget_before(&mut self, now: UnixTime) {
        while let Some((number, (_, at))) = self.order.first_key_value()
            && at.plus_secs(self.secs) <= now
        {
            let number = *number;
            self.forget(Some(number));
        }
    }

    fn forget(&mut self, number: Option<u64>) {
        let name = number.and_then(|number| self.order.get(&number)).map(|(name, _)| *name);
        name.into_iter().for_each(|name| self.remove(name));
    }
}
