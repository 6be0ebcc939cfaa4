//! What the service's connections are used for, and how many of each there may be: [`Use`].
//!
//! ```text
//!                               of 2,560   may wait   when all are taken
//!  silent: no request under way      384              the oldest makes way
//!  silent, of a trusted proxy        384              the oldest makes way
//!  requests to the application       768      1,536   the one that is behind, of who has most against it; see hoop_http::Places
//!  /hoop/* and /.well-known/hoop     256        256   the same
//!  streams of events                 256        256   the oldest makes way: a browser connects anew
//!  upgraded (WebSocket)              512        256   the one whose client has been silent the longest
//!                              and     8        320   lists of uploads, two at most of one client: the same as for /hoop/*
//! ```
//!
//! A list may be long, and is in memory until it has been sent. So few are made and sent at once. A client that reads
//! none of its list makes way.
//!
//! A request counts for the client that a trusted proxy names, and a silent connection for its own peer.

use hoop_http::{Code, Crowd, Place, Places, Problem, Share};
use hoop_units::Prefix;
use http::HeaderValue;
use std::net::IpAddr;
use std::time::Duration;

/// What a connection is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// A request to the application.
    Application = 2,
    /// One to the service itself.
    Own = 3,
    /// A stream of events.
    Events = 4,
    /// An upgraded connection.
    Tunnel = 5,
    /// A list of uploads, also the one that a stream of events begins with.
    List = 6,
}

/// The share of connections for each use, by its number, in twentieths. The first two are silent: of anybody, and of a
/// trusted proxy.
const TWENTIETHS: [usize; 6] = [3, 3, 6, 2, 2, 4];

/// As many twentieths of requests may wait: a crowd that comes at once waits, rather than being refused.
const WAITING: [usize; 6] = [0, 0, 12, 2, 2, 2];

/// Lists that are made at once, of all clients: each takes some megabytes for some milliseconds.
pub const LISTS_MAX: usize = 8;

/// Requests that wait for their turn to get a list: also all readers of events, who begin with one, and come again at once
/// when the service was restarted.
const LISTS_WAITING: usize = 64 + 256;

/// Lists that one client may have made, or not have read, at once.
const LISTS_OF_ONE: usize = 2;

/// Places for so many connections in all, and for lists. Each use has one at least.
pub fn crowd(connections: usize, proxies: Vec<Prefix>) -> Crowd {
    let shares = TWENTIETHS.iter().zip(WAITING).enumerate().map(|(number, (twentieths, waiting))| {
        let places = (connections * twentieths / 20).max(1);
        let comes_again = number < 2 || number == Use::Events as usize;
        let share = if comes_again { Share::by_age(places) } else { Share::of(places) };
        // A proxy speaks for many.
        Share { forgives: number == 1, ..share.waits(connections * waiting / 20) }
    });
    let lists = Share { of_one: Some(LISTS_OF_ONE), ..Share::of(LISTS_MAX).waits(LISTS_WAITING) };
    Crowd { places: Places::new(shares.chain([lists]).collect()), proxies }
}

/// How long a request waits for a place: longer than it takes a crowd that comes at once to fall behind.
pub const WAIT: Duration = Duration::from_secs(5);

/// When a client that got no place may come again.
const AGAIN: Duration = Duration::from_secs(2);

/// Takes a place for that use and that client, as soon as there is one. Without a crowd a connection has no place, and
/// needs none.
///
/// # Errors
/// `too-many-requests`, if there is none in time.
pub async fn enter(place: Option<&Place>, what: Use, client: IpAddr) -> Result<(), Problem> {
    let Some(place) = place else { return Ok(()) };
    match place.changed(what as usize, client, WAIT).await {
        true => Ok(()),
        false => Err(Problem::new(Code::TooManyRequests, "too many requests at once").retry_after(AGAIN)),
    }
}

/// Whether a `Content-Type` says that a message is a stream of events, or an `Accept` asks for one alone, as an
/// `EventSource` does (HTML, "Server-sent events").
pub fn is_events(value: Option<&HeaderValue>) -> bool {
    let media = value.and_then(|value| value.to_str().ok()).unwrap_or_default().split(';').next().unwrap_or_default();
    media.trim().eq_ignore_ascii_case("text/event-stream")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_connections_are_shared_and_each_use_gets_some() {
        assert_eq!(crowd(2_560, Vec::new()).places.total(), 2_560 * 38 / 20 + LISTS_MAX + LISTS_WAITING);
        assert_eq!(crowd(1, Vec::new()).places.total(), TWENTIETHS.len() + LISTS_MAX + LISTS_WAITING);
        assert_eq!(Use::List as usize, TWENTIETHS.len());
    }

    #[test]
    fn a_client_has_two_lists_at_once_and_all_have_eight() {
        let places = crowd(100, Vec::new()).places;
        let list = |client: [u8; 4]| places.enter(Use::List as usize, client.into());
        let two = [list([10, 0, 1, 1]).unwrap(), list([10, 0, 1, 1]).unwrap()];
        assert!(list([10, 0, 1, 1]).is_none());
        drop(two);
        let all: Vec<_> = (0..8).map(|n| list([10, 0, n, 1]).unwrap()).collect();
        assert!(list([10, 0, 9, 1]).is_none(), "each has one, and nobody is slow");
        drop(all);
        assert!(list([10, 0, 9, 1]).is_some());
    }

    #[test]
    fn the_table_at_the_top_says_the_shares() {
        let share = |number: usize| 2_560 * TWENTIETHS[number] / 20;
        let numbers = [0, 1, Use::Application as usize, Use::Own as usize, Use::Events as usize, Use::Tunnel as usize];
        assert_eq!(numbers.map(share), [384, 384, 768, 256, 256, 512]);
    }
}
