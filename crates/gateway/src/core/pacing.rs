//! What an operator says of the uplink: [`Pacing`].

use hoop_dispatch::Hours;
use hoop_units::{Bitrate, Duration};

/// How fast uploads may leave, and when. The default: as fast as they go, always.
#[derive(Clone, Debug, Default)]
pub struct Pacing {
    /// The most that all uploads together may use of the uplink, headers counted.
    pub rate: Option<Bitrate>,
    /// The hours in which uploads are sent.
    pub hours: Hours,
    /// Whether to stay out of the household's way: the added delay to aim at, beside the time of two packets.
    pub background: Option<Duration>,
    /// A line that is billed by its 95th percentile.
    pub budget: Option<BudgetConfig>,
    /// The interface to the uplink, whose counters say what the whole household sends. `None`: our own octets are all.
    pub interface: Option<String>,
    /// Whether an upload that would miss its deadline waits for its hours, or keeps to the budget, all the same. Default false.
    pub deadlines_wait: bool,
    /// Seconds that local time is ahead of UTC; `None` (the default): what the system says.
    pub utc_offset: Option<i32>,
}

/// A line that is billed by its 95th percentile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BudgetConfig {
    /// The rate that is paid for anyway.
    pub committed: Bitrate,
    /// The day of the month, 1 to 28, on which the month of the bill begins, at midnight UTC.
    pub billing_day: u8,
}

impl Pacing {
    /// Whether packets have to be paced at all.
    pub fn is_paced(&self) -> bool {
        let rates = self.rate.is_some() || self.background.is_some() || self.budget.is_some();
        // A window may have a rate of its own.
        rates || self.hours.is_limited()
    }
}
