//! What a gateway's connections are used for, and how many of each there may be: [`Use`].
//!
//! ```text
//!                                of 48   may wait   when all are taken
//!  uploads, and all with a body     24         64   the one that is behind, of who has most against it; see hoop_http::Places
//!  questions: all else               8      1,024   the same
//!  streams of events                16          8   the oldest makes way: a page connects anew
//!  no request                       64              the oldest makes way
//! ```
//!
//! The heads of what waits take 8 KiB each on average: so a crowd with long ones takes some 9 MiB.

use crate::access::representation::Representation;
use crate::core::device_limits::DeviceLimits;
use hoop_http::{Code, Crowd, Place, Places, Problem, RequestBody, Share};
use http::Method;
use http::request::Parts;
use std::net::IpAddr;
use std::time::Duration;

/// What a request uses its connection for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// A request without a body.
    Question = 2,
    /// One with a body.
    Upload = 3,
    /// A stream of events.
    Events = 4,
}

/// Connections of one device that ask for nothing. Enough for a program with 64 workers.
const RESTING_OF_ONE: usize = 64;

/// How long a request waits for its place: longer than most devices do.
const WAIT: Duration = Duration::from_secs(600);

/// What the heads of those that wait take, for each that may wait, in bytes. A page's request has a third of it, with a permit.
const WAITING_HEAD_BYTES: usize = 8 << 10;

/// Who has to come again for a place.
const AGAIN: Duration = Duration::from_secs(2);

/// Places for so many connections that are served, with what one device may have of them. Each use has one at least.
pub fn crowd(connections: usize, device: DeviceLimits) -> Crowd {
    let of_one = (device.connections > 0).then_some(device.connections);
    let limited = |share: Share, of_one| {
        let share = share.heads(WAITING_HEAD_BYTES);
        Share { of_one, of_loopback: device.loopback, ..share }
    };
    let (thirds, part) = (|of: usize| connections * of / 3, |places: usize| places.max(1));
    let places = Places::new(vec![
        limited(Share::by_age(part(thirds(4))), of_one.map(|_| RESTING_OF_ONE)),
        // Nobody stands in front of a gateway whose word about others counts.
        Share::by_age(1),
        limited(Share::of(part(connections / 6)).waits(thirds(64)), of_one),
        limited(Share::of(part(connections / 2)).waits(thirds(4)), of_one),
        limited(Share::by_age(part(thirds(1))).waits(connections / 6), of_one),
    ]);
    Crowd { places, proxies: Vec::new() }
}

impl Use {
    /// What a request is for.
    pub fn of(head: &Parts, body: &RequestBody) -> Self {
        let is_read = matches!(head.method, Method::GET | Method::HEAD);
        match body.is_over() {
            false => Self::Upload,
            true if is_read && Representation::of(&head.headers) == Representation::Events => Self::Events,
            true => Self::Question,
        }
    }
}

/// Takes a place for that use, as soon as there is one.
///
/// # Errors
/// `too-many-requests`, for who has to make way before there is.
pub async fn enter(place: Option<&Place>, what: Use, device: IpAddr) -> Result<(), Problem> {
    let Some(place) = place else { return Ok(()) };
    match place.changed(what as usize, device, WAIT).await {
        true => Ok(()),
        false => {
            let problem = Problem::new(Code::TooManyRequests, "all connections are in use");
            Err(problem.retry_after(AGAIN))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_at_the_top_says_the_shares() {
        assert_eq!(crowd(48, DeviceLimits::default()).places.total(), 24 + 8 + 16 + 64 + 1 + 64 + 1_024 + 8);
        assert_eq!(crowd(1, DeviceLimits::default()).places.total(), 5 + 1 + 21);
    }
    #[tokio::test]
    async fn requests_with_long_heads_wait_in_8_mib_and_displace_no_short_ones() {
        const LONG: usize = 31_000;
        let places = crowd(48, DeviceLimits::default()).places;
        let mut waiting = tokio::task::JoinSet::new();
        for n in 0..2_000_u16 {
            let [high, low] = n.to_be_bytes();
            let device = [10, high, low, 1].into();
            let place = places.enter(0, device).unwrap();
            // Eight have places; then there are a few short ones, and the crowd.
            place.brings(if n < 16 { 2_000 } else { LONG });
            waiting.spawn(async move {
                let entered = enter(Some(&place), Use::Question, device).await;
                // Whoever has a place keeps it.
                entered.map(|()| std::mem::forget(place)).map_err(|_| n)
            });
            tokio::task::yield_now().await;
        }
        let mut refused = Vec::new();
        while let Some(ended) = waiting.try_join_next() {
            refused.extend(ended.unwrap().err());
        }
        let wait = 2_000 - 8 - refused.len();
        assert_eq!(wait, 8 + (1_024 * WAITING_HEAD_BYTES - 8 * 2_000) / LONG);
        assert!(refused.iter().all(|n| *n >= 16));
    }
}
