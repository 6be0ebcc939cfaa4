//! The operating system's dice; its clock, looked at while a server runs.

use crate::process::shutdown::Shutdown;
use hoop_clock::Clock;
use hoop_units::UnixTime;
use http::{HeaderMap, header};
use std::time::{Duration, SystemTime};

/// The clocks are looked at so often: a jump that lasts is noticed at once, and one that does not has no effect in any case.
const LOOK: Duration = Duration::from_secs(10);

/// Looks at a clock now and then, and has it write down what time it is, until `shutdown` and once more then.
pub async fn keep_time(clock: &Clock, mut shutdown: Shutdown) {
    loop {
        let last = tokio::select! {
            () = shutdown.requested() => true,
            () = tokio::time::sleep(LOOK) => false,
        };
        let clock = clock.clone();
        // An error means that the runtime is going down.
        let _ = tokio::task::spawn_blocking(move || clock.look(last)).await;
        if last {
            return;
        }
    }
}

/// What time it is by an answer's `Date` (RFC 9110 §6.6.1).
pub fn date(headers: &HeaderMap) -> Option<UnixTime> {
    let date = httpdate::parse_http_date(headers.get(header::DATE)?.to_str().ok()?).ok()?;
    let since = date.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    u32::try_from(since.as_secs()).ok().map(UnixTime)
}

/// The operating system's cryptographic random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rng;

impl Rng {
    /// So many random bytes.
    ///
    /// # Panics
    /// If the operating system has none, which leaves nothing safe to do.
    pub fn bytes<const N: usize>(self) -> [u8; N] {
        let mut bytes = [0; N];
        ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes)
            .expect("the operating system has random numbers");
        bytes
    }

    /// A uniform number, for jitter.
    pub fn jitter(self) -> u32 {
        u32::from_ne_bytes(self.bytes())
    }
}
