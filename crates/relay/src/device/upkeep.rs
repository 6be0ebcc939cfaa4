//! When a device dials its server, and when it lets a carrier go: [`Upkeep`]. Pure; [`Link`](crate::Link) runs one for each way.
//!
//! ```text
//!            a flow wants one                     it is up
//!   nothing ─────────────────▶ dialling ───────────────────▶ up ──┐ silent: kept, and another is dialled
//!      ▲                        ▲    │ not reached                │
//!      │                        └────┘ again, later and later     │
//!      └── no flow needs it ── gone: dialled again at once ◀──────┘
//! ```
//!
//! A carrier that is closed soon after it was up, again and again, is dialled later and later as well: the server may close each for want of room.

use hoop_units::{Backoff, Timestamp};
use std::time::Duration;

/// Waits between attempts to reach the server. A network that changes is tried at once.
const RETRY: Backoff = Backoff { base: Duration::from_millis(250), cap: Duration::from_secs(15) };

/// A carrier that lived so long was up. One that is closed sooner is dialled again as if it had not been reached.
const STEADY: Duration = Duration::from_secs(10);

/// How a carrier ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The server said so by QUIC: it was restarted, or has no room.
    ByQuic,
    /// A WebSocket was closed, or broke off.
    ByWebSocket,
    /// What answers is no server of flows.
    ByAnother,
    /// Nothing was heard.
    Silent,
}

/// What has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A flow wants a carrier.
    Wanted,
    /// No flow needs one.
    Unneeded,
    /// The time has come that [`Upkeep::poll_timeout`] told.
    Due,
    /// What was dialled is up.
    Up,
    /// What was dialled is not reached; whether nothing was heard at all.
    NotReached { is_silence: bool },
    /// It was found out why dialling takes so long.
    Explained,
    /// The carrier owes an answer, and nothing comes; whether it is one of QUIC.
    Silent { is_quic: bool },
    /// The carrier is gone; whether a flow needs another.
    Gone { end: End, is_needed: bool },
    /// A network has come up, or carries again.
    NetworkUp,
}

/// What is to be done, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// Dial, instead of what is being dialled. `explains`: and find out why, if it takes long.
    Dial { explains: bool },
    /// Have flows use what is up, and close the carrier that was there.
    Use,
    /// Close the carrier.
    Close,
    /// Have the carrier ask its server for a sign of life.
    Probe,
    /// Whether a way leads to the server has changed.
    Leads(bool),
    /// The server was reached, or what was reached is none.
    Reached(bool),
    /// Tell why the server is not reached: the error that came with the event.
    Tell,
    /// Remember that QUIC is silent.
    QuicIsSilent,
    /// Remember that QUIC has brought an answer.
    QuicAnswered,
    /// Remember that a WebSocket was ended as soon as it was up.
    WebSocketIsEnded,
    /// Move to fresh sockets.
    LinkIsUp,
    /// Probe no longer whether the server can be reached.
    StopProbe,
}

/// The carrier that there is.
#[derive(Clone, Copy, Debug)]
struct Here {
    since: Timestamp,
    is_silent: bool,
}

/// The carriers of one way.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    here: Option<Here>,
    is_dialling: bool,
    /// When to dial.
    due: Option<Timestamp>,
    /// How many attempts in a row have failed.
    attempt: u32,
    /// How many carriers in a row were gone as soon as they were up.
    closed_soon: u32,
    /// It was found out why dialling takes long, since a carrier was up last.
    is_explained: bool,
    leads: bool,
}

impl Upkeep {
    /// Takes note of what has happened, and gives what is to be done. `jitter` is any number: devices that lost their server together do not come back together.
    pub(crate) fn handle(&mut self, event: Event, now: Timestamp, jitter: u32) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Wanted => self.wanted(now),
            Event::Unneeded => {
                if self.here.take().is_some() {
                    actions.push(Action::Close);
                }
                actions.push(Action::StopProbe);
            }
            Event::Due => {}
            Event::Up => {
                self.here = Some(Here { since: now, is_silent: false });
                (self.is_dialling, self.attempt, self.is_explained) = (false, 0, false);
                actions.extend([Action::Use, Action::StopProbe, Action::Reached(true)]);
            }
            Event::NotReached { is_silence } => {
                self.is_dialling = false;
                // QUIC knows nothing else, and TCP did.
                if !(self.is_explained && is_silence) {
                    actions.push(Action::Tell);
                }
                self.due = Some(now + RETRY.delay(self.attempt, jitter));
                self.attempt = self.attempt.saturating_add(1);
            }
            Event::Explained => {
                self.is_explained = true;
                actions.push(Action::Tell);
            }
            Event::Silent { is_quic } => {
                if let Some(here) = &mut self.here {
                    here.is_silent = true;
                    actions.extend(is_quic.then_some(Action::QuicIsSilent));
                    (self.due, self.is_dialling) = (Some(now), false);
                }
            }
            Event::Gone { end, is_needed } => self.gone(end, is_needed, now, jitter, &mut actions),
            Event::NetworkUp => {
                actions.extend([Action::StopProbe, Action::LinkIsUp]);
                actions.extend(self.here.map(|_| Action::Probe));
                // What is under way may have begun where there was no way.
                if self.is_dialling || self.due.is_some() {
                    (self.attempt, self.closed_soon) = (0, 0);
                    (self.due, self.is_dialling) = (Some(now), false);
                }
            }
        }
        if self.due.is_some_and(|due| due <= now) {
            (self.due, self.is_dialling) = (None, true);
            actions.push(Action::Dial { explains: !self.is_explained });
        }
        if self.leads != self.is_served() {
            self.leads = self.is_served();
            actions.push(Action::Leads(self.leads));
        }
        actions
    }

    /// When [`Event::Due`] is to come.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.due
    }

    fn wanted(&mut self, now: Timestamp) {
        if !self.is_served() && !self.is_dialling && self.due.is_none() {
            self.due = Some(now);
        }
    }

    fn gone(&mut self, end: End, is_needed: bool, now: Timestamp, jitter: u32, actions: &mut Vec<Action>) {
        let Some(here) = self.here.take() else { return };
        let was_steady = now.since(here.since) >= STEADY;
        match end {
            End::ByQuic => actions.push(Action::QuicAnswered),
            End::ByAnother => actions.extend([Action::Reached(false), Action::Tell]),
            End::ByWebSocket | End::Silent => {}
        }
        if matches!(end, End::ByWebSocket | End::ByAnother) && !was_steady {
            actions.push(Action::WebSocketIsEnded);
        }
        if was_steady {
            self.closed_soon = 0;
        }
        if !self.is_dialling && self.due.is_none() && is_needed {
            let again = self.closed_soon.checked_sub(1).map_or(Duration::ZERO, |times| RETRY.delay(times, jitter));
            // What answers and is no server will not be one at once.
            self.due = Some(now + if end == End::ByAnother { RETRY.cap } else { again });
            self.closed_soon = self.closed_soon.saturating_add(1);
        }
    }

    /// There is a carrier that is not silent.
    fn is_served(&self) -> bool {
        self.here.is_some_and(|here| !here.is_silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Action::{
        Close, Dial, Leads, LinkIsUp, Probe, QuicAnswered, QuicIsSilent, Reached, StopProbe, Tell, Use,
        WebSocketIsEnded,
    };

    const GONE: Event = Event::Gone { end: End::ByQuic, is_needed: true };
    const DIAL: Action = Dial { explains: true };

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// Each event at its time, in milliseconds; and what is done about the last. The dice show their highest.
    fn after(upkeep: &mut Upkeep, events: &[(u64, Event)]) -> Vec<Action> {
        events.iter().map(|(now, event)| upkeep.handle(*event, at(*now), u32::MAX)).last().unwrap_or_default()
    }

    /// One whose carrier is up.
    fn up() -> Upkeep {
        let mut upkeep = Upkeep::default();
        after(&mut upkeep, &[(0, Event::Wanted), (100, Event::Up)]);
        upkeep
    }

    #[test]
    fn nothing_is_dialled_until_a_flow_wants_a_carrier() {
        let mut upkeep = Upkeep::default();
        assert_eq!(after(&mut upkeep, &[(0, Event::NetworkUp)]), [StopProbe, LinkIsUp]);
        assert_eq!(upkeep.poll_timeout(), None);
        assert_eq!(after(&mut upkeep, &[(5, Event::Wanted)]), [DIAL]);
        assert_eq!(after(&mut upkeep, &[(6, Event::Wanted)]), [], "it is under way");
        assert_eq!(after(&mut upkeep, &[(9, Event::Up)]), [Use, StopProbe, Reached(true), Leads(true)]);
        assert_eq!(after(&mut upkeep, &[(10, Event::Wanted)]), [], "there is one");
        assert_eq!(after(&mut upkeep, &[(30_000, Event::Unneeded)]), [Close, StopProbe, Leads(false)]);
        assert_eq!(upkeep.poll_timeout(), None);
    }

    #[test]
    fn a_server_that_is_not_reached_is_dialled_later_and_later() {
        let (mut upkeep, mut now) = (Upkeep::default(), 0);
        let failed = Event::NotReached { is_silence: false };
        after(&mut upkeep, &[(now, Event::Wanted)]);
        for wait in [250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000] {
            assert_eq!(after(&mut upkeep, &[(now, failed)]), [Tell]);
            assert_eq!(upkeep.poll_timeout(), Some(at(now + wait)));
            now += wait;
            assert_eq!(after(&mut upkeep, &[(now, Event::Due)]), [DIAL]);
        }
        after(&mut upkeep, &[(now, failed)]);
        assert_eq!(after(&mut upkeep, &[(now + 9, Event::NetworkUp)]), [StopProbe, LinkIsUp, DIAL], "at once");
        after(&mut upkeep, &[(now + 10, failed)]);
        assert_eq!(upkeep.poll_timeout(), Some(at(now + 260)), "from the beginning");
    }

    #[test]
    fn the_cause_that_tcp_found_is_not_followed_by_quics_silence() {
        let mut upkeep = Upkeep::default();
        let silence = Event::NotReached { is_silence: true };
        assert_eq!(after(&mut upkeep, &[(0, Event::Wanted), (2_000, Event::Explained)]), [Tell]);
        assert_eq!(after(&mut upkeep, &[(10_000, silence)]), []);
        assert_eq!(after(&mut upkeep, &[(10_250, Event::Due)]), [Dial { explains: false }]);
        assert_eq!(after(&mut upkeep, &[(10_300, Event::NotReached { is_silence: false })]), [Tell]);
        assert_eq!(
            after(&mut upkeep, &[(10_800, Event::Due), (10_900, Event::Up), (11_000, GONE)]).last(),
            Some(&Leads(false))
        );
        assert_eq!(after(&mut upkeep, &[(12_000, silence)]), [Tell], "a carrier was up since");
    }

    #[test]
    fn a_silent_carrier_is_kept_until_another_is_up() {
        let mut upkeep = up();
        let silent = Event::Silent { is_quic: true };
        assert_eq!(after(&mut upkeep, &[(5_000, silent)]), [QuicIsSilent, DIAL, Leads(false)]);
        assert_eq!(after(&mut upkeep, &[(5_001, Event::NetworkUp)]), [StopProbe, LinkIsUp, Probe, DIAL]);
        assert_eq!(after(&mut upkeep, &[(5_300, Event::Up)]), [Use, StopProbe, Reached(true), Leads(true)]);
        let mut upkeep = up();
        after(&mut upkeep, &[(5_000, silent)]);
        assert_eq!(after(&mut upkeep, &[(5_001, GONE)]), [QuicAnswered], "another is being dialled");
        let mut upkeep = up();
        after(&mut upkeep, &[(50_000, Event::Silent { is_quic: false }), (50_001, GONE)]);
        assert_eq!(after(&mut upkeep, &[(50_002, silent)]), [], "it is gone");
    }

    #[test]
    fn a_server_that_ends_quic_is_dialled_at_once_and_known_to_answer() {
        let mut upkeep = up();
        assert_eq!(after(&mut upkeep, &[(60_000, GONE)]), [QuicAnswered, DIAL, Leads(false)]);
        let mut upkeep = up();
        let unneeded = Event::Gone { end: End::ByQuic, is_needed: false };
        assert_eq!(after(&mut upkeep, &[(60_000, unneeded)]), [QuicAnswered, Leads(false)], "when a flow wants it");
    }

    #[test]
    fn carriers_that_are_ended_soon_are_dialled_later_and_later() {
        let mut upkeep = up();
        let ended = Event::Gone { end: End::ByWebSocket, is_needed: true };
        let mut now = 200;
        assert_eq!(after(&mut upkeep, &[(now, ended)]), [WebSocketIsEnded, DIAL, Leads(false)]);
        for wait in [250, 500, 1_000, 2_000] {
            after(&mut upkeep, &[(now, Event::Up), (now + 100, ended)]);
            assert_eq!(upkeep.poll_timeout(), Some(at(now + 100 + wait)));
            now += 100 + wait;
            after(&mut upkeep, &[(now, Event::Due)]);
        }
        after(&mut upkeep, &[(now, Event::Up)]);
        assert_eq!(after(&mut upkeep, &[(now + 10_000, ended)]), [DIAL, Leads(false)], "it was up");
    }

    #[test]
    fn what_answers_and_is_no_server_is_dialled_again_after_the_longest_wait() {
        let mut upkeep = up();
        let other = Event::Gone { end: End::ByAnother, is_needed: true };
        assert_eq!(after(&mut upkeep, &[(200, other)]), [Reached(false), Tell, WebSocketIsEnded, Leads(false)]);
        assert_eq!(upkeep.poll_timeout(), Some(at(15_200)));
        assert_eq!(after(&mut upkeep, &[(300, Event::Wanted)]), [], "it waits");
    }
}
