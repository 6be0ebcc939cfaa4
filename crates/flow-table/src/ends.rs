//! How flows ended: [`Ends`].

use alloc::collections::VecDeque;
use core::hash::BuildHasher;
use hashbrown::HashMap;
use hoop_flow::FlowName;
use hoop_units::UnixTime;

/// Remembers how the last flows ended, for some time.
#[derive(Debug)]
pub struct Ends<S> {
    codes: HashMap<FlowName, (u64, UnixTime), S>,
    /// In the order in which they ended; a name may be there twice, and counts where its time is the one that is known.
    order: VecDeque<(FlowName, UnixTime)>,
    most: usize,
    secs: u32,
}

impl<S: BuildHasher> Ends<S> {
    pub fn new(most: usize, secs: u32, hasher: S) -> Self {
        Self { codes: HashMap::with_hasher(hasher), order: VecDeque::new(), most, secs }
    }

    pub fn get(&self, name: FlowName) -> Option<u64> {
        self.codes.get(&name).map(|(code, _)| *code)
    }

    pub fn len(&self) -> usize {
        self.codes.len()
    }

    pub fn insert(&mut self, name: FlowName, code: u64, at: UnixTime) {
        if self.most == 0 {
            return;
        }
        while self.order.len() >= self.most {
            self.forget_first();
        }
        self.codes.insert(name, (code, at));
        self.order.push_back((name, at));
    }

    /// There is such a flow again.
    pub fn remove(&mut self, name: FlowName) {
        self.codes.remove(&name);
    }

    pub fn forget_before(&mut self, now: UnixTime) {
        while self.order.front().is_some_and(|(_, at)| at.plus_secs(self.secs) <= now) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        let Some((name, at)) = self.order.pop_front() else { return };
        if self.codes.get(&name).is_some_and(|(_, last)| *last == at) {
            self.codes.remove(&name);
        }
    }
}
