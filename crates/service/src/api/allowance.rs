//! How often one payer may ask for tickets, and change something: [`Allowance`].

use super::rates::Rates;
use crate::model::Payer;
use hoop_http::{Clock, Code, Problem};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many settings, notes and acts of one payer are taken in a minute: ten a second, each synced to the disk before
/// its answer. A page that uploads a thousand files notes them one by one, and waits when told to.
const CHANGES_PER_MINUTE: u32 = 600;

/// What payers have asked for lately, and how often they were refused.
pub struct Allowance {
    clock: Clock,
    tickets: Mutex<Rates>,
    changes: Mutex<Rates>,
    /// How often a user, or an address, got no ticket.
    tickets_refused: [AtomicU64; 2],
}

impl Allowance {
    /// So many tickets a minute for each payer.
    pub fn new(tickets_per_minute: u32, clock: Clock) -> Self {
        let [tickets, changes] = [tickets_per_minute, CHANGES_PER_MINUTE].map(|rate| Mutex::new(Rates::new(rate)));
        Self { clock, tickets, changes, tickets_refused: Default::default() }
    }

    /// Takes `count` tickets from the payer's allowance.
    ///
    /// # Errors
    /// `too-many-requests`.
    pub fn take_tickets(&self, payer: Payer, count: u8) -> Result<(), Problem> {
        self.take(&self.tickets, payer, count.into(), "has had as many tickets as it gets").inspect_err(|_| {
            self.tickets_refused[usize::from(matches!(payer, Payer::Address(_)))].fetch_add(1, Ordering::Relaxed);
        })
    }

    /// Takes one change (settings, a note, or what becomes of an upload) from the payer's allowance.
    ///
    /// # Errors
    /// `too-many-requests`.
    pub fn take_change(&self, payer: Payer) -> Result<(), Problem> {
        self.take(&self.changes, payer, 1, "has changed as much as it may")
    }

    fn take(&self, rates: &Mutex<Rates>, payer: Payer, count: u32, what: &str) -> Result<(), Problem> {
        let mut rates = rates.lock();
        rates.take(payer, count, self.clock.now()).map_err(|wait| {
            let whose = match payer {
                Payer::Owner(_) => "this user",
                Payer::Address(_) => "this address",
            };
            Problem::new(Code::TooManyRequests, format!("{whose} {what} in a minute")).retry_after(wait)
        })
    }

    /// How often a payer got no ticket, by its kind.
    pub fn ticket_refusals(&self) -> [(&'static str, u64); 2] {
        let of = |at: usize| self.tickets_refused[at].load(Ordering::Relaxed);
        [("owner", of(0)), ("address", of(1))]
    }
}
