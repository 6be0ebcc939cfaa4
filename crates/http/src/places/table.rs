//! Who holds which place, who waits for one, and who makes way: [`Table`]. Time comes in.

use super::pace::{AT_FIRST, BY_LEAVE, Sign, micros};
use super::share::Share;
use super::standing::Standings;
use hoop_units::AddressKey;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Of those that wait for a share, so many in vain at most are looked at at once: they come in their order, so whoever comes after them hardly has a better claim.
const IN_VAIN: usize = 8;

/// Beyond so many that wait, the last of equals comes first: a longer queue is a crowd, and takes longer to serve than anybody should wait.
const CROWD: usize = 64;

/// A network that holds no more than this part of the places keeps them from others as long as it moves.
const MODEST: usize = 64;

/// So many of a share begin as they come. A share by age has no such bound: who rests costs nothing.
const FREELY: usize = 64;

/// Beyond these one more begins in so long, whether there is a place or one makes way; and whenever one has come to its end. What begins costs a server most: a crowd that
/// begins all at once would take the cores from everybody.
const ONE_IN: Duration = Duration::from_millis(2);

/// So much more slowly where as many as [`FREELY`] are at work, which is whoever is not waited for: what works at once shares the cores, and each takes as much longer. An application that only
/// waits gets 50 more a second.
const SLOWER_AT_WORK: u32 = 10;

/// But so many may at once.
const AT_ONCE: u32 = 32;

/// Whoever is known for having had to make way counts for so many: one in 50 ms. A crowd that comes again and again would otherwise keep a core busy with nothing but that.
const KNOWN_COUNTS: u32 = 25;

/// How long at least whoever has come has before it makes way in a share by age: longer than what it has sent at once takes to come.
const AT_LEAST: Duration = Duration::from_millis(2);

/// Who holds what, and who waits for what.
#[derive(Debug)]
pub(super) struct Table {
    pub shares: Vec<Share>,
    pub taken: Vec<usize>,
    next: u64,
    /// How often a place was looked for.
    #[cfg(test)]
    tries: usize,
    /// Those with a place, by their share and number.
    held: BTreeMap<(usize, u64), Held>,
    /// Those that wait for one, in the order of their turns: by share, by how much is against them, by when they came.
    waiting: BTreeMap<Turn, (u64, Held)>,
    /// How many wait for each share, and what their heads take, in bytes.
    waits: Vec<usize>,
    head_bytes: Vec<usize>,
    /// What each share owed, and when, for what had begun in it (the leaky bucket of ITU-T I.371).
    begun: Vec<(Duration, Duration)>,
    /// The same of those that are known for having had to make way: others do not pay for them.
    begun_known: Vec<(Duration, Duration)>,
    /// Where each number is to be found.
    found: BTreeMap<u64, Found>,
    clients: BTreeMap<(usize, AddressKey), Count>,
    networks: BTreeMap<(usize, AddressKey), Count>,
    known_clients: Standings,
    known_networks: Standings,
    /// Somebody looks again for those that wait, as time goes by.
    pub is_looking: bool,
}

/// Whose turn it is: the share, what is against who waits, and a number that grows.
type Turn = (usize, Weight, u64);

#[derive(Clone, Copy, Debug)]
enum Found {
    Holds(usize),
    Waits(usize, Weight, u64),
}

/// What is against a network, and in it against a client: the places that the network has, those that the client has or waits for, and how both have used others before. Of clients
/// that are alike, who comes from where most wait comes last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Weight {
    network: i64,
    client: i64,
    waits: usize,
}

/// Places of a share that a client or a network has, and those that it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Count {
    held: usize,
    waits: usize,
}

/// What a connection does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Stage {
    /// Its request is served, or waits for that.
    Asks,
    /// It has asked for nothing yet.
    New,
    /// It has had what it came for, and stays.
    Rests,
}

#[derive(Clone, Debug)]
pub(super) struct Held {
    share: usize,
    client: AddressKey,
    network: AddressKey,
    entered: Duration,
    stage: Stage,
    /// What its request's head takes, if it has one.
    head_bytes: usize,
    pub sign: Arc<Sign>,
}

/// There is no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Full {
    /// The client has all that it may.
    One,
    /// Nobody makes way, or not yet; and the client is known for having had to.
    Known,
    /// Nobody makes way, or not yet.
    All,
}

/// What came of asking for a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    Has,
    Waits,
    /// There is none, and as many wait as may. What it had before it has still.
    Refused,
}

impl Table {
    pub(super) fn new(shares: Vec<Share>) -> Self {
        Self {
            taken: vec![0; shares.len()],
            waits: vec![0; shares.len()],
            head_bytes: vec![0; shares.len()],
            begun: vec![<(Duration, Duration)>::default(); shares.len()],
            begun_known: vec![<(Duration, Duration)>::default(); shares.len()],
            shares,
            next: 0,
            held: BTreeMap::new(),
            waiting: BTreeMap::new(),
            found: BTreeMap::new(),
            clients: BTreeMap::new(),
            networks: BTreeMap::new(),
            known_clients: Standings::default(),
            #[cfg(test)]
            tries: 0,
            known_networks: Standings::default(),
            is_looking: false,
        }
    }

    pub(super) fn enter(&mut self, share: usize, client: IpAddr, now: Duration) -> Result<(u64, Arc<Sign>), Full> {
        let held = Held::new(share, client, now, Stage::New, Arc::default());
        self.make_room(&held, now)?;
        let (number, sign) = (self.number(), held.sign.clone());
        self.put(number, held);
        Ok((number, sign))
    }

    /// The number of one that has come.
    pub(super) const fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    /// A place of another share, now. Whether there is one; if not, it keeps what it had. One that has made way comes as anybody else.
    pub(super) fn change(&mut self, number: u64, after: Held) -> bool {
        let (before, now) = (self.remove(number), after.entered);
        if let Some(before) = before.as_ref().filter(|_| after.stage == Stage::Rests) {
            self.is_served(before, now);
        }
        let changes = self.make_room(&after, now).is_ok();
        let left = before.as_ref().map(|held| held.share);
        if changes {
            after.sign.begins();
        }
        if let Some(held) = if changes { Some(after) } else { before } {
            self.put(number, held);
        }
        left.iter().for_each(|share| self.hand_on(*share, now));
        changes
    }

    /// A place of another share, now or as soon as there is one. It leaves what it had.
    pub(super) fn ask(&mut self, number: u64, after: Held) -> Asked {
        let (before, now, share) = (self.remove(number), after.entered, after.share);
        let weight = self.weight(&after, now);
        // Who has nothing, and has done nothing, takes no turn of who has more.
        let has_nothing = self.count(&after).1 == Count::default() && self.standing(&after, now).client >= 0;
        let is_first = has_nothing || self.first(share).is_none_or(|first| weight < first);
        let asked = if is_first && self.make_room(&after, now).is_ok() {
            after.sign.begins();
            self.put(number, after);
            Asked::Has
        } else if self.has_room_to_wait(&after, weight) {
            after.sign.begins();
            self.enqueue(number, after, weight);
            Asked::Waits
        } else {
            Asked::Refused
        };
        match before {
            Some(held) if asked == Asked::Refused => self.put(number, held),
            Some(held) => self.hand_on(held.share, now),
            None => {}
        }
        asked
    }

    /// Whether it holds a place; none if it waits for one.
    pub(super) fn holds(&self, number: u64) -> Option<bool> {
        match self.found.get(&number) {
            Some(Found::Waits(..)) => None,
            found => Some(found.is_some()),
        }
    }

    /// Whether others wait for a place of the share in which it has one; so, too, if it has none.
    pub(super) fn is_awaited(&self, number: u64) -> bool {
        match self.found.get(&number) {
            Some(Found::Holds(share)) => self.first(*share).is_some(),
            Some(Found::Waits(..)) | None => true,
        }
    }

    /// It waits no longer.
    pub(super) fn gives_up(&mut self, number: u64) {
        if let Some(Found::Waits(share, weight, turn)) = self.found.get(&number).copied() {
            self.dequeue((share, weight, turn));
        }
    }

    /// It is no more. Whoever waits for its place gets it.
    pub(super) fn leave(&mut self, number: u64, now: Duration) {
        self.gives_up(number);
        if let Some(held) = self.remove(number) {
            self.hand_on(held.share, now);
        }
    }

    /// Looks again for everybody that waits, since who becomes behind does so by time alone. Whether anybody still waits.
    pub(super) fn look(&mut self, now: Duration) -> bool {
        (0..self.shares.len()).for_each(|share| self.serve_first(share, usize::MAX, now));
        self.is_looking = !self.waiting.is_empty();
        self.is_looking
    }

    /// What is against the first that waits for a share.
    fn first(&self, share: usize) -> Option<Weight> {
        self.turn(share, false, None).map(|(_, weight, _)| weight)
    }

    /// Whether half of those wait that may, or more than [`CROWD`].
    fn is_crowded(&self, share: usize) -> bool {
        self.waits[share] > CROWD.min(self.shares[share].waits / 2)
    }

    /// Whether whoever comes to a share begins as it comes.
    fn is_free(&self, share: usize) -> bool {
        self.shares[share].by_age || self.taken[share] < FREELY.min(self.shares[share].places)
    }

    /// Whether one more may begin in a share now.
    fn may_begin(&self, share: usize, is_known: bool, now: Duration) -> bool {
        let owes = if is_known { self.owes(share, now).max(self.known_owe(share, now)) } else { self.owes(share, now) };
        self.is_free(share) || owes + ONE_IN <= ONE_IN * AT_ONCE
    }

    /// What is owed for those that are known.
    fn known_owe(&self, share: usize, now: Duration) -> Duration {
        let (at, owed) = self.begun_known[share];
        owed.saturating_sub(now.saturating_sub(at))
    }

    /// What a share owes for what has begun in it: [`ONE_IN`] each, which time pays off.
    fn owes(&self, share: usize, now: Duration) -> Duration {
        let (at, owed) = self.begun[share];
        let passed = now.saturating_sub(at);
        let is_slow = !owed.is_zero() && self.is_at_work(share, now);
        owed.saturating_sub(if is_slow { passed / SLOWER_AT_WORK } else { passed })
    }

    /// Whether as many as [`FREELY`] are at work.
    fn is_at_work(&self, share: usize, now: Duration) -> bool {
        let at_work =
            self.in_share(share).filter(|(_, held)| held.stage == Stage::Asks && held.sign.late(now).is_none());
        at_work.take(FREELY).count() == FREELY
    }

    /// The next turn of all that wait for a share, behind that one. Of equals the first comes first; in a crowd, the last: if it comes at once, it is better to serve some at once
    /// than all late (B. Maurer, "Fail at Scale", ACM Queue 2015, adaptive LIFO).
    fn turn(&self, share: usize, in_crowd: bool, behind: Option<Turn>) -> Option<Turn> {
        let first = |from: Turn| {
            let rest = (Bound::Excluded(from), Bound::Excluded((share + 1, Weight::LEAST, 0)));
            self.waiting.range(rest).next().map(|(key, _)| *key)
        };
        // No turn has the number 0 and the least weight, nor the last number.
        let begin = behind.unwrap_or((share, Weight::LEAST, 0));
        if !in_crowd {
            return first(begin);
        }
        let last = |weight, before| self.waiting.range((share, weight, 0)..before).next_back().map(|(key, _)| *key);
        let equal = behind.and_then(|behind| last(behind.1, behind));
        equal.or_else(|| {
            let (_, weight, _) = first((share, begin.1, if behind.is_some() { u64::MAX } else { 0 }))?;
            last(weight, (share, weight, u64::MAX))
        })
    }

    /// Gives one that waits its place, if there is one for it.
    fn serve(&mut self, key: Turn, now: Duration) -> Result<(), Full> {
        // Its own turn counts for nobody.
        let (_, held) = self.waiting.get(&key).ok_or(Full::One)?;
        let held = Held { entered: now, ..held.clone() };
        self.make_room(&held, now)?;
        if let Some(number) = self.dequeue(key) {
            held.sign.begins();
            held.sign.turn.notify_one();
            self.put(number, held);
        }
        Ok(())
    }

    /// A place has become free: it is for the first that may have it.
    fn hand_on(&mut self, share: usize, now: Duration) {
        if !self.is_free(share) {
            self.begun[share] = (now, self.owes(share, now).saturating_sub(ONE_IN));
        }
        if self.waiting.is_empty() || self.taken[share] >= self.shares[share].places {
            return;
        }
        self.serve_first(share, 1, now);
    }

    /// Gives a place to the first of those that wait for a share, to `most` of them at most. Each try looks at all who have a place, so of those that wait few are tried: whoever has all that
    /// one may is passed over with all of its own, and those that are known for having had to make way once none of them may begin now. Of others it tries [`IN_VAIN`] in vain.
    fn serve_first(&mut self, share: usize, most: usize, now: Duration) {
        let (mut served, mut in_vain, mut turn) = (0, 0, None);
        let (mut full, mut none_known) = (BTreeSet::new(), false);
        let in_crowd = self.is_crowded(share);
        while served < most && in_vain < IN_VAIN {
            turn = self.turn(share, in_crowd, turn);
            let Some((key, (_, held))) = turn.and_then(|key| self.waiting.get_key_value(&key)) else { return };
            let (key, client) = (*key, held.client);
            if full.contains(&client) || (none_known && self.standing(held, now).client < 0) {
                continue;
            }
            match self.serve(key, now) {
                Ok(()) => served += 1,
                Err(Full::One) => drop(full.insert(client)),
                // Nobody may begin now.
                Err(Full::All) if !self.may_begin(share, false, now) => return,
                Err(Full::Known) if !self.may_begin(share, true, now) => none_known = true,
                Err(Full::Known | Full::All) => in_vain += 1,
            }
        }
    }

    /// Sees to it that one more may wait. Where as many wait as may, who has most against it, and of equals has waited longest, is told that there is no place; where their heads take
    /// all that they may, the same one of those whose heads take more than their part. But the newcomer is told so if it is one of these and has more against it.
    fn has_room_to_wait(&mut self, newcomer: &Held, weight: Weight) -> bool {
        let Some(share) = self.shares.get(newcomer.share).copied() else { return false };
        let most = share.waits.saturating_mul(share.head_bytes);
        loop {
            let is_full = self.waits[newcomer.share] >= share.waits;
            if !is_full && self.head_bytes[newcomer.share].saturating_add(newcomer.head_bytes) <= most {
                return true;
            }
            let may = |held: &Held| is_full || held.head_bytes > share.head_bytes;
            let Some(last) = self.last(newcomer.share, may) else { return false };
            if may(newcomer) && last.1 < weight {
                return false;
            }
            if let Some((_, held)) = self.waiting.get(&last) {
                held.sign.makes_way();
            }
            self.dequeue(last);
        }
    }

    /// Of those that wait for a share and `may` be told that there is no place, the one with most against it that has waited longest.
    fn last(&self, share: usize, may: impl Fn(&Held) -> bool) -> Option<Turn> {
        let all = self.waiting.range((share, Weight::LEAST, 0)..(share + 1, Weight::LEAST, 0));
        let mut these = all.rev().filter(|(_, (_, held))| may(held)).map(|(key, _)| *key);
        let last = these.next()?;
        Some(these.take_while(|key| key.1 == last.1).last().unwrap_or(last))
    }

    fn enqueue(&mut self, number: u64, held: Held, weight: Weight) {
        let turn = self.next;
        self.next += 1;
        self.clients.entry((held.share, held.client)).or_default().waits += 1;
        self.networks.entry((held.share, held.network)).or_default().waits += 1;
        self.found.insert(number, Found::Waits(held.share, weight, turn));
        self.waits[held.share] += 1;
        self.head_bytes[held.share] += held.head_bytes;
        self.waiting.insert((held.share, weight, turn), (number, held));
    }

    fn dequeue(&mut self, key: Turn) -> Option<u64> {
        let (number, held) = self.waiting.remove(&key)?;
        self.found.remove(&number);
        self.waits[held.share] -= 1;
        self.head_bytes[held.share] -= held.head_bytes;
        let fewer = |count: &mut Count| count.waits -= 1;
        less(&mut self.clients, (held.share, held.client), fewer);
        less(&mut self.networks, (held.share, held.network), fewer);
        Some(number)
    }

    fn remove(&mut self, number: u64) -> Option<Held> {
        let Some(Found::Holds(share)) = self.found.get(&number).copied() else { return None };
        self.found.remove(&number);
        let held = self.held.remove(&(share, number))?;
        self.taken[share] -= 1;
        let fewer = |count: &mut Count| count.held -= 1;
        less(&mut self.clients, (share, held.client), fewer);
        less(&mut self.networks, (share, held.network), fewer);
        Some(held)
    }

    fn put(&mut self, number: u64, held: Held) {
        self.taken[held.share] += 1;
        self.clients.entry((held.share, held.client)).or_default().held += 1;
        self.networks.entry((held.share, held.network)).or_default().held += 1;
        self.found.insert(number, Found::Holds(held.share));
        self.held.insert((held.share, number), held);
    }

    /// Sees to it that there is a place for `newcomer`.
    fn make_room(&mut self, newcomer: &Held, now: Duration) -> Result<(), Full> {
        #[cfg(test)]
        {
            self.tries += 1;
        }
        let share = *self.shares.get(newcomer.share).ok_or(Full::One)?;
        let (network, own) = self.counts(newcomer);
        let is_limited = share.of_loopback || !newcomer.client.is_loopback();
        if is_limited && share.of_one.is_some_and(|most| own >= most) {
            let own = self.behind(newcomer, share, now, |held| held.client == newcomer.client);
            let number = own.ok_or(Full::One)?;
            self.evict(number);
            return Ok(());
        }
        let standing = self.standing(newcomer, now);
        let full = if standing.client < 0 { Full::Known } else { Full::All };
        if !self.may_begin(newcomer.share, standing.client < 0, now) {
            return Err(full);
        }
        if self.taken[newcomer.share] < share.places {
            self.begins(newcomer.share, standing, now);
            return Ok(());
        }
        let may = |held: &Held| {
            self.counts(held).0 > network
                || held.network == newcomer.network
                || self.standing(held, now).network < standing.network
        };
        let behind = self.behind(newcomer, share, now, may);
        let number =
            behind.or_else(|| self.latest_of_most(newcomer, share)).or_else(|| self.hurries(newcomer, share, now, may));
        if let Some(held) = behind.and_then(|number| self.held.get(&(newcomer.share, number))) {
            let (client, network) = (held.client, held.network);
            let is_at_fault = held.is_at_fault(share, now);
            if is_at_fault && client != newcomer.client {
                self.known_clients.is_at_fault(client, now);
            }
            if is_at_fault && network != newcomer.network {
                self.known_networks.is_at_fault(network, now);
            }
        }
        let number = number.ok_or(full)?;
        self.begins(newcomer.share, standing, now);
        self.evict(number);
        Ok(())
    }

    fn begins(&mut self, share: usize, standing: Weight, now: Duration) {
        if !self.is_free(share) {
            self.begun[share] = (now, self.owes(share, now) + ONE_IN);
            if standing.client < 0 {
                self.begun_known[share] = (now, self.known_owe(share, now) + ONE_IN * KNOWN_COUNTS);
            }
        }
    }

    fn evict(&mut self, number: u64) {
        if let Some(held) = self.remove(number) {
            held.sign.makes_way();
        }
    }

    /// A request was answered.
    fn is_served(&mut self, held: &Held, now: Duration) {
        if held.stage == Stage::Asks && held.sign.is_served() {
            self.known_clients.is_served(held.client, now);
            self.known_networks.is_served(held.network, now);
        }
    }

    fn in_share(&self, share: usize) -> impl Iterator<Item = (u64, &Held)> {
        self.held.range((share, 0)..(share + 1, 0)).map(|((_, number), held)| (*number, held))
    }

    /// How many places its network holds, and its client.
    fn counts(&self, held: &Held) -> (usize, usize) {
        let (network, client) = self.count(held);
        (network.held, client.held)
    }

    fn count(&self, held: &Held) -> (Count, Count) {
        let network = self.networks.get(&(held.share, held.network)).copied().unwrap_or_default();
        (network, self.clients.get(&(held.share, held.client)).copied().unwrap_or_default())
    }

    fn standing(&self, held: &Held, now: Duration) -> Weight {
        let (network, client) = (self.known_networks.of(held.network, now), self.known_clients.of(held.client, now));
        Weight { network, client, waits: 0 }
    }

    fn weight(&self, held: &Held, now: Duration) -> Weight {
        let ((network, client), standing) = (self.count(held), self.standing(held, now));
        let weight = |count: usize, standing| i64::try_from(count).unwrap_or(i64::MAX) - standing;
        Weight {
            // What waits is no reason on a LAN, where all are of one network: whoever came last would be last.
            network: weight(network.held, standing.network),
            client: weight(client.held + client.waits, standing.client),
            waits: network.waits,
        }
    }

    /// Of those that `may` make way for `newcomer`, who is behind.
    fn behind(&self, newcomer: &Held, share: Share, now: Duration, may: impl Fn(&Held) -> bool) -> Option<u64> {
        let standing = self.standing(newcomer, now).client;
        let late = self.in_share(newcomer.share).filter_map(|(number, held)| {
            let late = held.late(share, now)?;
            // Whoever is known for being behind has no moment of its own before who is not.
            let is_behind =
                late >= 0 || (late >= -micros(AT_FIRST) && standing >= 0 && self.standing(held, now).client < 0);
            // Who has been served goes before who has not, and takes nobody's place who has not.
            let goes = held.stage == Stage::Rests || newcomer.stage != Stage::Rests;
            (is_behind && goes && may(held)).then(|| (self.weight(held, now), held.stage, late, number))
        });
        let most = late.max_by_key(|(weight, stage, late, number)| (*weight, *stage, *late, u64::MAX - number));
        most.map(|(.., number)| number)
    }

    /// Where age decides, and more come than there are places for in a moment: who makes way although it has had less. Otherwise all that come would wait in the system's queue, and
    /// whoever comes fastest would set the pace for everybody.
    fn hurries(&self, newcomer: &Held, share: Share, now: Duration, may: impl Fn(&Held) -> bool) -> Option<u64> {
        // Requests that wait have a queue of their own, and who is known for having had to make way is refused.
        if !share.by_age || newcomer.stage != Stage::New || self.standing(newcomer, now).client < 0 {
            return None;
        }
        let theirs = self.in_share(newcomer.share).filter_map(|(number, held)| {
            let late = held.late(share, now)?;
            let has_been = now.saturating_sub(held.entered) >= AT_LEAST;
            (has_been && may(held)).then(|| (self.weight(held, now), held.stage, late, number))
        });
        let most = theirs.max_by_key(|(weight, stage, late, number)| (*weight, *stage, *late, u64::MAX - number));
        most.map(|(.., number)| number)
    }

    fn latest_of_most(&self, newcomer: &Held, share: Share) -> Option<u64> {
        // Where age decides, whoever has just come has its moment.
        if share.by_age {
            return None;
        }
        let own = self.counts(newcomer);
        let theirs = self.in_share(newcomer.share).map(|(number, held)| (self.counts(held), held.network, number));
        let modest = share.places / MODEST;
        let more = theirs.filter(|((network, client), whose, _)| {
            *network > modest && (*network > own.0 + 1 || (*whose == newcomer.network && *client > own.1 + 1))
        });
        more.max_by_key(|(counts, _, number)| (*counts, *number)).map(|(.., number)| number)
    }
}

impl Weight {
    const LEAST: Self = Self { network: i64::MIN, client: i64::MIN, waits: 0 };
}

/// Changes a count, and forgets it when it is over.
fn less(counts: &mut BTreeMap<(usize, AddressKey), Count>, key: (usize, AddressKey), change: impl Fn(&mut Count)) {
    if let Some(count) = counts.get_mut(&key) {
        change(count);
        if count.held + count.waits == 0 {
            counts.remove(&key);
        }
    }
}

impl Held {
    pub(super) fn new(share: usize, client: IpAddr, entered: Duration, stage: Stage, sign: Arc<Sign>) -> Self {
        let head_bytes = sign.head_bytes.load(Ordering::Relaxed);
        Self { share, client: AddressKey::from_ip(client), network: network(client), entered, stage, head_bytes, sign }
    }

    /// For how long it has been behind, if it may be; below zero: for how long it is not yet.
    fn late(&self, share: Share, now: Duration) -> Option<i64> {
        match share.by_age && self.stage != Stage::New {
            true => Some(micros(now.saturating_sub(self.entered)) - micros(AT_FIRST)),
            // What it has sent may not have been looked at yet.
            false => self.sign.late(now),
        }
    }

    /// Whether it did wrong, if it has to make way because it is behind. Whoever has had what it came for, or could be asked to come again, has not; and what one sends at first may
    /// have a long way.
    fn is_at_fault(&self, share: Share, now: Duration) -> bool {
        let is_wrong = match (share.by_age, self.stage) {
            (true, Stage::New) => self.sign.late(now).is_some_and(|late| late >= micros(BY_LEAVE)),
            (by_age, _) => !by_age,
        };
        is_wrong && !share.forgives
    }
}

/// The network of an address: IPv4 /24, IPv6 /48.
pub(crate) fn network(ip: IpAddr) -> AddressKey {
    let ip = ip.to_canonical();
    let mut network = AddressKey::from_ip(ip);
    let from = if ip.is_ipv4() { 15 } else { 6 };
    network.0[from..].fill(0);
    network
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The address of a host in a network of its own.
    fn far(n: u8) -> IpAddr {
        [10, 0, n, 1].into()
    }

    struct Bench {
        table: Table,
        now: Duration,
    }

    impl Bench {
        fn new(share: Share) -> Self {
            Self { table: Table::new(vec![share, Share::of(2)]), now: SECOND }
        }

        /// Enters a second later: the place, if there is one, and who made way.
        fn enter(&mut self, client: IpAddr) -> Option<(u64, Vec<u64>)> {
            self.now += SECOND;
            let before: Vec<u64> = self.numbers();
            let (number, sign) = self.table.enter(0, client, self.now).ok()?;
            if self.table.shares[0].by_age {
                sign.awaits(self.now, true);
            }
            Some((number, before.into_iter().filter(|number| self.table.holds(*number) == Some(false)).collect()))
        }

        /// Enters after so long, and is silent.
        fn enter_after(&mut self, client: IpAddr, after: Duration) -> Result<u64, Full> {
            self.now += after;
            let (number, sign) = self.table.enter(0, client, self.now)?;
            sign.awaits(self.now, true);
            Ok(number)
        }

        fn fill(&mut self, clients: impl IntoIterator<Item = IpAddr>) {
            clients.into_iter().for_each(|client| assert!(self.enter(client).unwrap().1.is_empty()));
        }

        fn numbers(&self) -> Vec<u64> {
            self.table.found.keys().copied().collect()
        }

        fn sign(&self, number: u64) -> Arc<Sign> {
            self.table.held.iter().find(|((_, own), _)| *own == number).unwrap().1.sign.clone()
        }

        fn awaits(&self, number: u64) {
            self.sign(number).awaits(self.now, true);
        }

        fn comes(&self, number: u64, bytes: usize) {
            self.sign(number).pace().comes(bytes, self.now);
        }
    }

    #[test]
    fn of_who_holds_most_the_one_that_is_behind_the_longest_makes_way() {
        let mut bench = Bench::new(Share::of(5));
        bench.fill([far(1), far(2), far(2), far(2), far(3)]);
        bench.awaits(0);
        bench.now += SECOND;
        bench.awaits(3);
        bench.now += SECOND;
        bench.awaits(2);
        assert_eq!(bench.enter(far(4)).unwrap().1, [3], "who came first to be behind holds less");
        assert_eq!(bench.enter(far(5)).unwrap().1, [2]);
        assert_eq!(bench.enter(far(6)).unwrap().1, [0]);
        assert_eq!(bench.enter(far(7)), None, "each holds one, and nobody is behind");
    }

    #[test]
    fn single_bytes_leave_a_client_behind_and_kilobytes_do_not() {
        let mut bench = Bench::new(Share::of(2));
        bench.fill([far(1), far(2)]);
        for _ in 0..100 {
            bench.awaits(0);
            bench.awaits(1);
            bench.now += SECOND / 10;
            bench.comes(0, 1);
            bench.comes(1, 4096);
        }
        bench.awaits(0);
        bench.awaits(1);
        assert_eq!(bench.enter(far(3)).unwrap().1, [0]);
        bench.now -= SECOND + Duration::from_micros(1);
        assert_eq!(bench.enter(far(4)), None, "it has been waited for a second, and has earned as much");
        bench.now -= SECOND - Duration::from_micros(1);
        assert_eq!(bench.enter(far(4)).unwrap().1, [1]);
    }

    #[test]
    fn a_new_client_gets_a_moment_and_one_that_only_reads_earns_100_ms() {
        let mut bench = Bench::new(Share::of(2));
        bench.fill([far(1), far(2)]);
        bench.awaits(0);
        let sign = bench.sign(1);
        sign.pace().goes(1 << 20, bench.now);
        bench.awaits(1);
        let at = |bench: &mut Bench, after: Duration| {
            bench
                .table
                .make_room(&Held::new(0, far(9), bench.now + after, Stage::New, Arc::default()), bench.now + after)
        };
        assert_eq!(at(&mut bench, AT_FIRST - Duration::from_micros(1)), Err(Full::All));
        assert_eq!(at(&mut bench, AT_FIRST), Ok(()));
        assert!(bench.table.holds(0) == Some(false));
        bench.fill([far(3)]);
        bench.now -= SECOND;
        bench.table.begun[0] = <(Duration, Duration)>::default();
        assert_eq!(at(&mut bench, BY_LEAVE - Duration::from_micros(1)), Err(Full::All));
        assert_eq!(at(&mut bench, BY_LEAVE), Ok(()));
        assert!(bench.table.holds(1) == Some(false));
    }

    #[test]
    fn what_is_said_to_a_client_does_not_end_that_it_is_waited_for() {
        let mut bench = Bench::new(Share::of(1));
        bench.fill([far(1)]);
        bench.awaits(0);
        // An interim answer: `100 Continue`.
        bench.sign(0).pace().goes(25, bench.now);
        bench.now += BY_LEAVE;
        assert_eq!(bench.enter(far(2)).unwrap().1, [0]);
        // Who is waited for to read is not, once it has.
        bench.sign(1).awaits(bench.now, false);
        bench.sign(1).pace().goes(25, bench.now);
        bench.now += BY_LEAVE;
        assert_eq!(bench.enter(far(3)), None);
    }

    #[test]
    fn on_one_lan_who_holds_most_makes_way_for_who_holds_two_less() {
        let mut bench = Bench::new(Share::of(4));
        let host = |host| IpAddr::from([192, 168, 0, host]);
        bench.fill([host(1), host(1), host(1), host(2)]);
        assert_eq!(bench.enter(host(3)).unwrap().1, [2], "its latest");
        assert_eq!(bench.enter(host(4)).unwrap().1, [1]);
        assert_eq!(bench.enter(host(5)), None, "one each, and nobody is behind");
        bench.awaits(3);
        assert_eq!(bench.enter(host(5)).unwrap().1, [3]);
    }

    #[test]
    fn one_network_makes_way_though_it_moves_and_is_many_addresses() {
        let mut bench = Bench::new(Share::of(6));
        bench.fill([far(1), far(2)]);
        bench.fill((1..5).map(|host| [10, 9, 9, host].into()));
        assert_eq!(bench.enter(far(3)).unwrap().1, [5], "its latest");
        assert_eq!(bench.enter([10, 9, 9, 9].into()), None, "nobody makes way for it");
        assert_eq!(bench.enter(far(4)).unwrap().1, [4]);
        assert_eq!(bench.enter(far(5)).unwrap().1, [3]);
        assert_eq!(bench.enter(far(6)), None, "one each");
    }

    #[test]
    fn a_few_requests_of_one_network_are_left_to_it_among_hundreds_of_places() {
        let mut bench = Bench::new(Share::of(256));
        bench.fill((0..4).map(|_| far(1)));
        bench.fill((0..252).map(|n| many(1_000 + n)));
        assert_eq!(bench.enter(many(2_000)), None, "four are a 64th of them, and move");
        bench.table.leave(255, bench.now);
        bench.fill([far(1)]);
        assert_eq!(bench.enter(many(2_000)).unwrap().1, [256], "the latest of five");
    }

    #[test]
    fn where_anybody_may_be_asked_to_come_again_the_oldest_goes() {
        let mut bench = Bench::new(Share::by_age(3));
        bench.fill((1..4).map(far));
        assert_eq!(bench.enter(far(9)).unwrap().1, [0]);
        assert_eq!(bench.enter(far(9)).unwrap().1, [3], "its own: it holds most");
        assert_eq!(bench.enter(far(8)).unwrap().1, [1]);
    }

    #[test]
    fn a_served_connection_makes_way_before_waiting_ones_and_displaces_none() {
        let mut bench = Bench::new(Share::by_age(3));
        bench.fill((1..4).map(far));
        let rests = |bench: &mut Bench, number: u64| {
            bench.now += SECOND;
            let sign = bench.sign(number);
            let client = far(u8::try_from(number).unwrap() + 1);
            assert!(bench.table.change(number, Held::new(1, client, bench.now, Stage::Asks, sign.clone())));
            let after = Held::new(0, client, bench.now, Stage::Rests, sign);
            (bench.table.remove(number).is_some(), bench.table.make_room(&after, bench.now).is_ok(), after)
        };
        let (_, has_room, after) = rests(&mut bench, 2);
        assert!(has_room);
        bench.table.put(2, after);
        assert_eq!(bench.enter(far(9)).unwrap().1, [2], "though it is the latest");
        let (_, has_room, _) = rests(&mut bench, 1);
        assert!(has_room, "its own place is free");
        assert!(bench.enter(far(8)).unwrap().1.is_empty());
        let late = Held::new(0, far(7), bench.now, Stage::Rests, Arc::default());
        assert_eq!(bench.table.make_room(&late, bench.now), Err(Full::All));
    }

    #[test]
    fn a_change_frees_the_old_place_and_an_evicted_client_comes_back_as_new() {
        let mut bench = Bench::new(Share::by_age(2));
        bench.fill([far(1), far(2)]);
        let signs = [0, 1].map(|number| bench.sign(number));
        assert!(bench.table.change(0, Held::new(1, far(7), bench.now, Stage::Asks, signs[0].clone())));
        assert_eq!(bench.table.taken, [1, 1]);
        bench.fill([far(3)]);
        assert_eq!(bench.enter(far(4)).unwrap().1, [1]);
        assert!(signs[1].is_gone.load(Ordering::Relaxed));
        assert!(bench.table.change(1, Held::new(1, far(2), bench.now, Stage::Asks, signs[1].clone())));
        assert!(!signs[1].is_gone.load(Ordering::Relaxed));
        assert_eq!(bench.table.taken, [2, 2]);
        bench.table.leave(0, bench.now);
        bench.table.leave(1, bench.now);
        assert_eq!(
            (bench.table.taken.clone(), bench.table.clients.len(), bench.table.networks.len()),
            (vec![2, 0], 2, 2)
        );
    }

    #[test]
    fn a_client_with_all_that_one_may_have_makes_way_for_itself() {
        let mut bench = Bench::new(Share { of_one: Some(2), ..Share::of(5) });
        bench.fill([far(2), far(1), far(1)]);
        bench.awaits(0);
        bench.now += SECOND;
        assert_eq!(bench.enter(far(1)), None, "none of its own is behind");
        bench.awaits(2);
        bench.now += SECOND;
        bench.awaits(1);
        assert_eq!(bench.enter(far(1)).unwrap().1, [2], "its own, though another has been behind for longer");
        assert_eq!(bench.enter(far(1)).unwrap().1, [1]);
        assert_eq!(bench.enter(far(1)), None);
    }

    /// Asks for a place, as a request with a place of its own does: what came of it.
    fn ask(table: &mut Table, client: IpAddr, now: Duration) -> (u64, Asked) {
        let number = table.next;
        table.next += 1;
        (number, table.ask(number, Held::new(0, client, now, Stage::Asks, Arc::default())))
    }

    fn many(n: u16) -> IpAddr {
        let [high, low] = n.to_be_bytes();
        [10, high, low, 1].into()
    }

    /// Whoever has a place is waited for.
    fn all_are_awaited(table: &Table, now: Duration) {
        table.held.values().for_each(|held| held.sign.awaits(now, true));
    }

    #[test]
    fn few_requests_begin_while_others_work_until_those_end_or_await_clients() {
        let (mut table, mut now) = (Table::new(vec![Share::of(700).waits(1_400)]), SECOND);
        let crowd: Vec<_> = (0..600).map(|n| ask(&mut table, many(n), now).0).collect();
        let at_once = FREELY + AT_ONCE as usize;
        for _ in 0..100 {
            now += SECOND / 100;
            table.look(now);
        }
        assert!((at_once + 45..=at_once + 55).contains(&table.taken[0]), "{}", table.taken[0]);
        // One that is known for having had to make way costs others no more of their time.
        table.known_clients.is_at_fault(AddressKey::from_ip(many(999)), now);
        let (owed, known) =
            (table.owes(0, now), table.standing(&Held::new(0, many(999), now, Stage::New, Arc::default()), now));
        table.begins(0, known, now);
        assert_eq!(table.owes(0, now), owed + ONE_IN);
        table.begun[0] = (now, owed);
        let before = table.taken[0];
        crowd[..20].iter().for_each(|number| table.leave(*number, now));
        assert_eq!(table.taken[0], before, "one begins whenever one ends");
        for _ in 0..100 {
            all_are_awaited(&table, now);
            now += SECOND / 100;
            table.look(now);
        }
        assert!(table.taken[0] >= 500, "{}", table.taken[0]);
    }

    #[test]
    fn a_crowd_begins_by_and_by_and_the_last_of_equals_first() {
        let (mut table, mut now) = (Table::new(vec![Share::of(500).waits(1_000)]), SECOND);
        let crowd: Vec<_> = (0..400).map(|n| ask(&mut table, many(n), now)).collect();
        let at_once = FREELY + AT_ONCE as usize;
        assert!(crowd[..at_once].iter().all(|(_, asked)| *asked == Asked::Has));
        assert!(crowd[at_once..].iter().all(|(_, asked)| *asked == Asked::Waits), "though there are places");
        let (honest, asked) = ask(&mut table, many(999), now);
        assert_eq!((asked, table.look(now), table.holds(honest)), (Asked::Waits, true, None));
        all_are_awaited(&table, now);
        now += ONE_IN;
        table.look(now);
        assert_eq!(table.holds(honest), Some(true), "it came last");
        now += SECOND;
        for _ in 0..20 {
            let before = table.taken[0];
            now += ONE_IN * 5;
            table.look(now);
            all_are_awaited(&table, now);
            assert!(table.taken[0] - before <= at_once);
        }
        let end = now + ONE_IN * 400;
        while table.look(now) {
            all_are_awaited(&table, now);
            now += ONE_IN * 5;
            assert!(now < end);
        }
        assert_eq!(table.taken[0], 401);
    }

    #[test]
    fn on_one_lan_who_asks_once_is_served_before_who_asks_sixty_times() {
        let (mut table, now) = (Table::new(vec![Share::of(8).waits(1_024)]), SECOND);
        let host = |host| IpAddr::from([192, 168, 0, host]);
        let crowd: Vec<_> = (0..64).map(|_| ask(&mut table, host(9), now)).collect();
        assert!(crowd[8..].iter().all(|(_, asked)| *asked == Asked::Waits));
        let (honest, asked) = ask(&mut table, host(1), now);
        assert_eq!((asked, table.holds(crowd[7].0)), (Asked::Has, Some(false)), "the latest makes way");
        // The second of two that hold one each waits, and is next.
        let others: Vec<_> = (2..8).map(|n| ask(&mut table, host(n), now)).collect();
        let second = ask(&mut table, host(1), now);
        assert_eq!(second.1, Asked::Waits);
        table.leave(honest, now);
        assert_eq!(table.holds(second.0), Some(true), "{others:?}");
    }

    #[test]
    fn few_requests_with_long_heads_wait_and_short_ones_make_no_way_for_them() {
        let (mut table, now) = (Table::new(vec![Share::of(1).waits(64).heads(4_096)]), SECOND);
        let asks = |table: &mut Table, client, head_bytes: usize| {
            let (number, sign) = (table.next, Arc::<Sign>::default());
            sign.head_bytes.store(head_bytes, Ordering::Relaxed);
            table.next += 1;
            (number, table.ask(number, Held::new(0, client, now, Stage::Asks, sign)))
        };
        assert_eq!(asks(&mut table, many(0), 31_000).1, Asked::Has);
        let short: Vec<_> = (0..8).map(|n| asks(&mut table, many(100 + n), 4_096)).collect();
        let long: Vec<_> = (0..64).map(|n| asks(&mut table, many(200 + n), 31_000)).collect();
        assert!(short.iter().chain(&long).all(|(_, asked)| *asked == Asked::Waits));
        let waits = |table: &Table, (number, _): &(u64, Asked)| table.holds(*number).is_none();
        assert!(short.iter().all(|one| waits(&table, one)), "though they have waited longest");
        assert_eq!(long.iter().filter(|one| waits(&table, one)).count(), (64 - 8) * 4_096 / 31_000);
        assert!(table.head_bytes[0] <= 64 * 4_096);
        // Who has more against it is told so at once, but never for a short head.
        table.known_clients.is_at_fault(AddressKey::from_ip(many(999)), now);
        assert_eq!(asks(&mut table, many(999), 31_000).1, Asked::Refused);
        assert_eq!(asks(&mut table, many(999), 4_096).1, Asked::Waits);
        // Whoever fills the queue with short heads gets no more of it than before.
        let more: Vec<_> = (0..64).map(|n| asks(&mut table, many(300 + n), 4_096)).collect();
        assert!(more.iter().all(|one| waits(&table, one)) && table.waits[0] == 64);
        assert!(table.head_bytes[0] <= 64 * 4_096);
        more.iter().for_each(|(number, _)| table.gives_up(*number));
        short.iter().chain(&long).for_each(|(number, _)| table.gives_up(*number));
        assert_eq!((table.head_bytes[0], table.waiting.len()), (0, 0));
    }

    #[test]
    fn a_crowd_that_comes_again_and_again_begins_more_slowly_than_who_is_new() {
        let (mut table, now) = (Table::new(vec![Share::of(500).waits(1_000)]), SECOND);
        (0..400).for_each(|n| table.known_clients.is_at_fault(AddressKey::from_ip(many(n)), now));
        let crowd: Vec<_> = (0..400).map(|n| ask(&mut table, many(n), now)).collect();
        let begun = |table: &Table| table.taken[0];
        assert_eq!(begun(&table), FREELY + 2);
        all_are_awaited(&table, now);
        let mut now = now + SECOND;
        table.look(now);
        assert!(begun(&table) < FREELY + 10);
        let (honest, asked) = ask(&mut table, many(999), now);
        now += ONE_IN * KNOWN_COUNTS;
        assert!(asked == Asked::Has || (table.look(now) && table.holds(honest) == Some(true)));
        assert!(crowd.iter().any(|(number, _)| table.holds(*number).is_none()));
    }

    /// Each try looks at all who have a place. With a thousand tries for each request that ended, a crowd of one address made all others wait for a second.
    #[test]
    fn a_place_that_is_left_is_tried_for_few_of_a_crowd() {
        for (of_one, from) in [(None, 400), (Some(4), 1), (Some(4), 2)] {
            let share = Share { of_one, ..Share::of(500).waits(1_000) };
            let (mut table, now) = (Table::new(vec![share]), SECOND);
            (0..from).for_each(|n| table.known_clients.is_at_fault(AddressKey::from_ip(many(n)), now));
            (0..900).for_each(|n| {
                ask(&mut table, many(n % from), now);
            });
            assert!(table.waiting.len() > 400, "{}", table.waiting.len());
            for n in 0..100 {
                let (honest, asked) = ask(&mut table, many(1_000 + n), now + ONE_IN * 2 * u32::from(n));
                let before = table.tries;
                table.leave(honest, now + ONE_IN * 2 * u32::from(n));
                let tries = table.tries - before;
                assert!(tries <= IN_VAIN + 1, "{tries} tries, {asked:?}, at most {of_one:?} of one, {from} clients");
            }
        }
    }

    #[test]
    fn one_behind_a_crowd_that_may_not_begin_gets_the_place_that_is_left() {
        let (mut table, mut now) = (Table::new(vec![Share::of(500).waits(1_000)]), SECOND);
        let honest = many(999);
        let own: Vec<_> = (0..FREELY + 8).map(|_| ask(&mut table, honest, now).0).collect();
        table.known_clients.is_at_fault(AddressKey::from_ip(many(1)), now);
        let crowd: Vec<_> = (0..200).map(|_| ask(&mut table, many(1), now).0).collect();
        assert!(crowd.iter().filter(|number| table.holds(**number).is_none()).count() > 100);
        let (last, asked) = ask(&mut table, honest, now);
        assert_eq!(asked, Asked::Waits);
        for number in &own[..8] {
            now += ONE_IN;
            table.leave(*number, now);
        }
        assert_eq!(table.holds(last), Some(true));
    }

    /// Each of two addresses begins 2,500 connections a second, and says nothing: 64 places for 20 ms each are for 3,200.
    #[test]
    fn who_comes_faster_than_a_moment_lasts_has_nobody_wait() {
        let own_network = |n: u8| IpAddr::from([10, 0, 0, n]);
        for crowd in [2_u8, 3, 100, 250] {
            let mut bench = Bench::new(Share { of_one: Some(64), ..Share::by_age(64) });
            let (mut honest, mut waits) = (None, 0);
            for n in 0..2_000_u32 {
                let client = own_network(u8::try_from(n % u32::from(crowd)).unwrap());
                waits += u32::from(bench.enter_after(client, Duration::from_micros(200)) == Err(Full::All));
                // A newcomer that holds nothing has its moment.
                if n % 50 == 0 {
                    honest.take().into_iter().for_each(|number| assert_eq!(bench.table.holds(number), Some(true)));
                    honest = Some(bench.enter_after(own_network(255), Duration::ZERO).unwrap());
                } else if n % 50 == 5 {
                    honest.take().into_iter().for_each(|number| {
                        assert_eq!(bench.table.holds(number), Some(true), "{crowd}: it has had its millisecond");
                        bench.table.leave(number, bench.now);
                    });
                }
            }
            assert_eq!(waits, 0, "of a crowd of {crowd}");
        }
    }

    #[test]
    fn requests_begin_at_once_as_others_end_however_many_are_under_way() {
        let (mut table, now) = (Table::new(vec![Share::of(500).waits(10)]), SECOND);
        let mut under_way: Vec<_> = (0..90).map(|n| ask(&mut table, many(n), now).0).collect();
        for n in 0..10_000 {
            table.leave(under_way.remove(0), now);
            let (number, asked) = ask(&mut table, many(100 + n), now);
            assert_eq!(asked, Asked::Has);
            under_way.push(number);
        }
    }

    #[test]
    fn one_client_has_its_most_and_ipv6_counts_by_64_and_48() {
        let mut bench = Bench::new(Share { of_one: Some(2), ..Share::of(5) });
        let v6 = |text: &str| text.parse::<IpAddr>().unwrap();
        bench.fill([v6("2001:db8:0:1::1"), v6("2001:db8:0:1::2")]);
        assert_eq!(bench.enter(v6("2001:db8:0:1::3")), None);
        bench.fill([v6("2001:db8:0:2::1"), v6("2001:db8:0:3::1"), far(1)]);
        assert_eq!(bench.table.networks.len(), 2);
        assert_eq!(bench.enter(far(2)).unwrap().1, [1], "the /48 holds most, in it the /64");
    }
}
