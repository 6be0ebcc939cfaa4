//! How long the other end has been silent though it owes an answer: [`Silence`].

use std::time::Duration;
use tokio::time::Instant;

/// Samples for each limit: the silence is noticed at most an eighth later.
const SAMPLES: u32 = 8;

/// An answer is awaited for so many round trips at least.
const ROUND_TRIPS: u32 = 3;

/// What a carrier's counters say since they were read last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sample {
    /// Something came from the other end.
    pub heard: bool,
    /// Something that the other end must answer was sent, and is not answered.
    pub owed: bool,
}

/// A clock that runs while an answer is owed, and begins anew whenever something is heard.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    since: Option<Instant>,
}

impl Silence {
    /// How long it has lasted.
    pub(crate) fn note(&mut self, now: Instant, sample: Sample) -> Duration {
        if sample.heard || !sample.owed {
            self.since = None;
        }
        if !sample.owed {
            return Duration::ZERO;
        }
        now.duration_since(*self.since.get_or_insert(now))
    }
}

/// Waits until the silence has lasted for `limit`, and for [`ROUND_TRIPS`] as long as they are now.
pub(crate) async fn until_silent(
    limit: Duration,
    rtt: impl Fn() -> Option<Duration>,
    mut sample: impl FnMut() -> Sample,
) {
    let mut silence = Silence::default();
    while silence.note(Instant::now(), sample()) < limit.max(rtt().unwrap_or_default() * ROUND_TRIPS) {
        tokio::time::sleep(limit / SAMPLES).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_awaited_for_three_round_trips() {
        let owed = || Sample { heard: false, owed: true };
        let waited = async |rtt| {
            let begin = Instant::now();
            until_silent(Duration::from_millis(1_600), || rtt, owed).await;
            begin.elapsed()
        };
        assert_eq!(waited(None).await, Duration::from_millis(1_600));
        assert_eq!(waited(Some(Duration::from_millis(500))).await, Duration::from_millis(1_600));
        assert_eq!(waited(Some(Duration::from_secs(2))).await, Duration::from_secs(6));
    }

    #[test]
    fn silence_counts_from_the_first_sample_with_an_answer_owed_but_unheard() {
        let begin = Instant::now();
        let mut silence = Silence::default();
        let mut note = |ms, heard, owed| silence.note(begin + Duration::from_millis(ms), Sample { heard, owed });
        assert_eq!(note(0, false, false), Duration::ZERO, "an hour without traffic is no silence");
        assert_eq!(note(3_600_000, false, true), Duration::ZERO);
        assert_eq!(note(3_600_500, false, true), Duration::from_millis(500));
        assert_eq!(note(3_601_000, true, true), Duration::ZERO, "something came");
        assert_eq!(note(3_601_100, false, true), Duration::from_millis(100));
        assert_eq!(note(3_601_200, false, false), Duration::ZERO, "all is answered");
        assert_eq!(note(3_602_000, false, true), Duration::ZERO);
    }
}
