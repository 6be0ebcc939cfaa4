//! Whether an upload may begin here, or go on: [`Admission`].

use super::quotas::{Devices, Holding, Need, Promise};
use super::refusals::{begin_problem, early_problem};
use crate::core::blocking::DropBlocking;
use crate::core::config::Config;
use crate::core::problems::full_problem;
use crate::core::state::Core;
use crate::core::wire::PRELUDE_LEN;
use hoop_http::{Code, Problem};
use hoop_seal::{Layout, RECORD_SIZE};
use hoop_spool::{
    AWAY_COST, Begin, BeginError, Held, HeldBy, Intake, Offer, PROMISED_MAX, StoreError, UPLOAD_COST, Upload,
};
use hoop_units::{ByteRange, RangeSet, UnixTime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Uploads of one device that wait for their preludes: a quarter of all ([`hoop_spool::EARLY_MAX`]), so that nobody has them alone.
const EARLY_OF_ONE: usize = hoop_spool::EARLY_MAX / 4;

/// Judges by what is here already: of the device, and of all.
pub struct Admission {
    core: Arc<Core>,
    pub devices: Arc<Devices>,
    /// Uploads that are kept at once; 0: any number.
    max_uploads: u64,
    /// So many uploads may begin before they are counted again.
    uploads_left: AtomicU64,
    pub max_upload_bytes: u64,
}

/// Why an upload may not begin.
enum Refused {
    /// By this gateway's rules.
    Here(Problem),
    /// By the spool.
    Spool(BeginError),
}

impl From<BeginError> for Refused {
    fn from(error: BeginError) -> Self {
        Self::Spool(error)
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Self::Spool(error.into())
    }
}

impl Admission {
    /// As the configuration has it.
    pub fn new(config: &Config, core: Arc<Core>) -> Arc<Self> {
        Arc::new(Self {
            core,
            devices: Devices::new(config.device),
            max_uploads: config.max_uploads,
            uploads_left: AtomicU64::new(0),
            max_upload_bytes: config.max_upload_bytes,
        })
    }

    /// How an upload of `total` bytes is divided.
    ///
    /// # Errors
    /// `too-large`; `body-not-sealed` if no sealed body has that length.
    pub fn layout(&self, total: u64) -> Result<Layout, Problem> {
        if total > self.max_upload_bytes {
            let detail = format!("{total} bytes; this gateway takes {} at most", self.max_upload_bytes);
            return Err(Problem::new(Code::TooLarge, detail));
        }
        Layout::for_total(PRELUDE_LEN, RECORD_SIZE, total).map_err(|error| Problem::new(Code::BodyNotSealed, error))
    }

    /// Begins an upload, or goes on with it, if its device and its time allow it. `expires` is the ticket's end, or its permit's if that is earlier.
    pub async fn begin(
        self: &Arc<Self>,
        offer: Offer,
        range: Option<ByteRange>,
        expires: UnixTime,
    ) -> Result<(Begin, Promise), Problem> {
        // Who has gone by the time that it is begun drops it unseen.
        let begin = move |admission: &Self| admission.begin_now(&offer, range, expires).map(DropBlocking::new);
        self.core.turns.blocking(self, begin).await.map(DropBlocking::into_inner)
    }

    /// Begins an upload as [`Admission::begin`] does, waiting for the disk on this thread.
    pub fn begin_now(
        &self,
        offer: &Offer,
        range: Option<ByteRange>,
        expires: UnixTime,
    ) -> Result<(Begin, Promise), Problem> {
        let clock = &self.core.clock;
        let past = |life: u32| clock.past(Duration::from_secs(life.into()));
        let begun = self.core.spool.begin_if(offer, |upload, held_by| {
            let known = upload.is_some_and(|upload| !upload.is_early());
            if let Some(late) = hoop_spool::late_by(expires, known, past, clock.sure()) {
                let detail = format!("it ended {late} s ago, by this gateway's clock");
                return Err(Refused::Here(Problem::new(Code::TicketExpired, detail)));
            }
            self.promise(offer, range, upload, held_by)
        });
        begun.map_err(|refused| match refused {
            Refused::Here(problem) => problem,
            Refused::Spool(error) => begin_problem(error),
        })
    }

    /// Promises room for the next bytes of a sender that does not tell its length. Returns how many it may write now. Waits for the disk.
    ///
    /// # Errors
    /// If the spool fails.
    pub fn promise_next(&self, intake: &Intake) -> Result<u64, StoreError> {
        intake.promise_next(|device, held| Ok(self.devices.left(device, self.holding(&held)?)))
    }

    /// Whether another upload may begin. They are counted only once as many have begun as there was room for when they were counted last.
    fn has_place(&self) -> Result<bool, StoreError> {
        let most = self.max_uploads;
        let taken = self.uploads_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if most == 0 || taken.is_ok() {
            return Ok(true);
        }
        let under_way = self.core.spool.tally()?.into_iter().filter(|(state, _)| !state.is_final());
        let left = most.saturating_sub(under_way.map(|(_, sum)| sum.uploads).sum());
        self.uploads_left.store(left.saturating_sub(1), Ordering::Relaxed);
        Ok(left > 0)
    }

    /// Promises this device what it is about to send.
    fn promise(
        &self,
        offer: &Offer,
        range: Option<ByteRange>,
        upload: Option<&Upload>,
        held_by: &HeldBy<'_>,
    ) -> Result<Promise, Refused> {
        let now = self.core.clock.now();
        let is_new = upload.is_none();
        if is_new {
            self.devices.begin(offer.device, now).map_err(Refused::Here)?;
        }
        // Without a length nothing is asked for yet: see `OpenEnded`.
        let total = offer.total.or_else(|| upload.map(|upload| upload.total)).unwrap_or(0);
        let mut fresh: RangeSet = [range.unwrap_or(ByteRange::new(0, total))].into_iter().collect();
        upload.iter().flat_map(|upload| upload.stored.iter()).for_each(|span| fresh.remove(span));
        // Whose upload it is does not change with whoever sends the rest.
        let device = upload.map_or(offer.device, |upload| upload.device);
        let mut own = 0;
        let holding = match self.devices.is_limited(device) {
            true => {
                let held = held_by(device)?;
                if is_new && offer.is_early() && held.early >= EARLY_OF_ONE {
                    let detail = "this device has many uploads here that wait for their preludes";
                    return Err(Refused::Here(early_problem(detail)));
                }
                own = held.own;
                self.holding(&held)?
            }
            false => Holding { uploads: 0, bytes: 0, away: 0, room: u64::MAX },
        };
        let is_whole = upload.is_some_and(|upload| !upload.takes_more());
        // The spool is about to promise so much of what is missing, whatever this message brings of it.
        let stored = upload.map_or(0, |upload| upload.stored.len());
        let promised = total.saturating_sub(stored).min(PROMISED_MAX).saturating_sub(own);
        let need = Need { bytes: if is_whole { 0 } else { fresh.len().max(promised) }, is_new };
        if is_new && !self.has_place()? {
            let detail = format!("{} uploads are here, and no more are taken", self.max_uploads);
            return Err(Refused::Here(full_problem(detail)));
        }
        self.devices.promise(device, holding, need, now).map_err(|why| Refused::Here(full_problem(why)))
    }

    /// What a device has here, against all that the spool can hold.
    fn holding(&self, held: &Held) -> Result<Holding, StoreError> {
        let room = self.core.spool.occupied_bytes().saturating_add(self.core.spool.free_bytes()?);
        let rows = held.uploads.saturating_mul(UPLOAD_COST).saturating_add(held.away.saturating_mul(AWAY_COST));
        let bytes = held.bytes.saturating_add(rows);
        Ok(Holding { uploads: held.uploads, bytes, away: held.away, room })
    }
}
