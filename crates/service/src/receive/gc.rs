//! Clears away uploads, bodies, notes and settings whose time is over ([`run`]). A [`round`] runs each minute, and
//! again at once while there is more. A [`sweep`] runs each day, in the same way.
//!
//! Promises: a wall clock that has jumped ends nothing (`docs/time.md`). A failure at one upload is logged and tried
//! again the next time, and blocks no other.
//!
//! Bounds: [`ROUND_MAX`] rows of each kind a round; [`SWEEP_MAX`] bodies a sweep.

use crate::model::Change;
use crate::receive::Receive;
use crate::store::{SETTINGS_LIFE, StoreError};
use hoop_http::{Code, Shutdown};
use hoop_timekeeper::Over;
use hoop_units::UploadId;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often to clean: lifetimes are counted in days.
const ROUND: Duration = Duration::from_secs(60);

/// How often to look for bodies without an upload: they are rare, and it takes a walk through the folder.
const SWEEP: Duration = Duration::from_secs(24 * 3600);

/// Rows of each kind that are looked at in one round.
const ROUND_MAX: usize = 256;

/// How long an upload without record 0 lives. Nobody knows whose it is, so nobody can stop it. Senders begin with
/// record 0. A slower one begins anew, as its answers tell it.
const HEADLESS_SECS: u32 = 3600;

/// A body without an upload is deleted once nobody has written to it for a day. A crash between two syncs has left it.
const ORPHAN_SECS: u64 = 24 * 3600;

/// Bodies without an upload that one walk through the folder finds: a megabyte of ids.
const SWEEP_MAX: usize = 65_536;

/// Clears away until `shutdown`. Replays begin meanwhile: thousands of uploads may be over, each with its sync.
pub async fn run(receive: Arc<Receive>, mut shutdown: Shutdown) {
    let mut next_sweep = Instant::now();
    while !shutdown.is_requested() {
        let more = round(&receive).await;
        if Instant::now() >= next_sweep {
            let more = sweep(&receive, SWEEP_MAX).await;
            next_sweep = Instant::now() + if more { Duration::ZERO } else { SWEEP };
        }
        let wait = if more { Duration::ZERO } else { ROUND };
        tokio::select! {
            () = shutdown.requested() => {}
            () = tokio::time::sleep(wait.min(next_sweep.saturating_duration_since(Instant::now()))) => {}
        }
    }
}

/// Expires what is overdue, forgets uploads without record 0, deletes bodies that are no longer needed, and forgets
/// what nobody may ask for. Returns whether another round is due at once: one round did not take all, and nothing
/// failed.
async fn round(receive: &Receive) -> bool {
    let over = receive.context.over();
    let mut done = Done::default();
    let overdue = receive.context.store.with(move |index| index.overdue(over, ROUND_MAX)).await;
    for id in done.all("the index could not be asked for what is overdue", overdue) {
        let expired = receive.context.note(id, Change::Expire).await;
        if done.one("an upload could not be expired", expired.map(|()| true)) {
            // What a message brings from now on would go into a deleted file.
            receive.in_flight.halt(id, Some(Code::UploadExpired)).await;
            receive.room.give_back(id);
        }
    }
    let kept = receive.context.store.with(move |index| index.kept(over, ROUND_MAX)).await;
    for id in done.all("the index could not be asked for bodies that were kept long enough", kept) {
        done.one("a body that was kept could not be let go", receive.context.note(id, Change::LetGo).await);
    }
    let shed = receive.context.store.with(|index| index.shed()).await;
    done.count("what has ended could not make room", shed);
    let disposable = receive.context.store.with(|index| index.disposable(ROUND_MAX)).await;
    let disposable = done.all("the index could not be asked for bodies to delete", disposable);
    for id in &disposable {
        // Whoever still sends of one would keep its deleted body open.
        receive.in_flight.halt(*id, Some(Code::UploadDone)).await;
    }
    done.one("bodies could not be deleted", receive.context.store.dispose(disposable).await);
    let life = Duration::from_secs(HEADLESS_SECS.into());
    let past = Over { before: receive.context.clock.past(life), after: receive.context.clock.after(life) };
    // Those that somebody sends now stay, and are found again.
    let most = ROUND_MAX.saturating_add(receive.intakes.max());
    let headless = receive.context.store.with(move |index| index.headless(past, HEADLESS_SECS, most)).await;
    let headless = done.one("the index could not be asked for what has no record 0", headless);
    let mut discarded = 0;
    for id in headless {
        let is_gone = receive.in_flight.discard(&receive.context.store, &receive.room, id).await;
        discarded += usize::from(done.one("what has no record 0 could not be forgotten", is_gone));
    }
    done.full |= discarded >= ROUND_MAX;
    let forgotten = receive.context.store.with(move |index| index.forget(over, ROUND_MAX)).await;
    done.count("what is long over could not be forgotten", forgotten);
    let forgotten = receive.context.store.with(move |index| index.forget_marks(over, ROUND_MAX)).await;
    done.count("notes of what never came could not be forgotten", forgotten);
    let unused = receive.context.clock.over(SETTINGS_LIFE).unwrap_or(Over::NOTHING).before;
    let forgotten = receive.context.store.with(move |index| index.forget_settings(unused, ROUND_MAX)).await;
    done.count("settings that nobody uses could not be forgotten", forgotten);
    done.full && !done.failed
}

/// What a round has done.
#[derive(Default)]
struct Done {
    /// There was as much of something as a round takes.
    full: bool,
    /// Something failed, and would fail again at once.
    failed: bool,
}

impl Done {
    fn all(&mut self, what: &'static str, ids: Result<Vec<UploadId>, StoreError>) -> Vec<UploadId> {
        let ids = self.one(what, ids);
        self.full |= ids.len() >= ROUND_MAX;
        ids
    }

    fn count(&mut self, what: &'static str, count: Result<usize, StoreError>) {
        self.full |= self.one(what, count) >= ROUND_MAX;
    }

    fn one<T: Default>(&mut self, what: &'static str, result: Result<T, StoreError>) -> T {
        let done = logged(what, result);
        self.failed |= done.is_none();
        done.unwrap_or_default()
    }
}

/// Deletes at most so many bodies that no upload has. Returns whether another sweep is due at once: there were as many,
/// and nothing failed.
async fn sweep(receive: &Receive, max: usize) -> bool {
    let orphans = receive.context.store.orphans(ORPHAN_SECS, max).await;
    let orphans = logged("the bodies could not be looked through", orphans).unwrap_or_default();
    let mut more = orphans.len() >= max;
    for id in orphans {
        let removed = receive.in_flight.remove_orphan(&receive.context.store, id).await;
        more &= logged("a body without an upload could not be deleted", removed).is_some();
    }
    more
}

fn logged<T>(what: &'static str, result: Result<T, StoreError>) -> Option<T> {
    result.inspect_err(|error| tracing::error!(%error, "{what}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::context::Context;
    use crate::model::Upload;
    use crate::receive::arrival::{Arrival, tests::coming_in};
    use crate::store::{ENDED_MAX, Store};
    use hoop_seal::{Keyring, KwsId, ServiceKey};
    use hoop_units::{ByteRange, UnixTime};
    use std::fs::File;
    use std::path::Path;
    use std::time::SystemTime;

    fn receive(dir: &Path) -> Arc<Receive> {
        let (upstream, origin) = ("http://127.0.0.1:9".parse().unwrap(), "https://photos.example".parse().unwrap());
        let keys = Keyring::new(ServiceKey::new(KwsId([1; 4]), [2; 32]));
        let config = Config { intakes: 2 * ROUND_MAX, ..Config::new(upstream, origin, keys, dir.to_owned()) };
        let store = Store::open(dir, ENDED_MAX).unwrap();
        Receive::new(&config, Arc::new(Context::new(&config, store))).into()
    }

    /// An upload that comes in, and that the index knows. Its ticket ended in 1970.
    async fn noted(receive: &Receive) -> Arc<Arrival> {
        let arrival = coming_in(&**receive.context.store.bodies(), 1);
        let id = arrival.admission.id();
        receive.in_flight.part(id).lock().await.insert(id, vec![Arc::downgrade(&arrival)]);
        arrival.flush(&receive.context, &receive.room).await.unwrap().unwrap();
        arrival
    }

    /// Its body is deleted, and what else it brought would count for nobody.
    #[tokio::test]
    async fn a_message_ends_once_its_upload_expires() {
        let dir = tempfile::tempdir().unwrap();
        let receive = receive(dir.path());
        let arrival = noted(&receive).await;
        assert_eq!(arrival.halted(), None);
        round(&receive).await;
        assert_eq!(arrival.halted(), Some(Code::UploadExpired));
    }

    /// A stop may have ended before it told them.
    #[tokio::test]
    async fn a_message_ends_before_its_body_is_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let receive = receive(dir.path());
        let arrival = noted(&receive).await;
        let id = arrival.admission.id();
        receive.context.store.apply(id, Change::Stop, UnixTime(1)).await.unwrap();
        assert_eq!(arrival.halted(), None);
        round(&receive).await;
        assert_eq!(arrival.halted(), Some(Code::UploadDone));
    }

    #[tokio::test]
    async fn uploads_that_somebody_sends_keep_no_others_from_being_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let receive = receive(dir.path());
        let (now, ends) = (receive.context.clock.unix(), receive.context.clock.unix().plus_secs(9_999));
        let begun = |id, ago| {
            let mut upload = Upload::begun(id, vec![1], 1_000, ends, UnixTime(now.0 - ago));
            upload.received.insert(ByteRange::new(1, 2));
            receive.context.store.bodies().create(id).unwrap();
            receive.context.store.with(move |index| index.receive(&upload, true))
        };
        let mut sent = Vec::new();
        for n in 0..ROUND_MAX + 9 {
            let id = UploadId(std::array::from_fn(|at| if at < 2 { n.to_be_bytes()[at + 6] } else { 7 }));
            begun(id, HEADLESS_SECS + 99).await.unwrap();
            let arrival = coming_in(&**receive.context.store.bodies(), 1);
            receive.in_flight.part(id).lock().await.insert(id, vec![Arc::downgrade(&arrival)]);
            sent.push(arrival);
        }
        let left = UploadId([9; 16]);
        begun(left, HEADLESS_SECS + 9).await.unwrap();
        round(&receive).await;
        assert!(receive.context.store.load(left).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_sweep_goes_on_while_there_are_bodies_that_no_upload_has() {
        let dir = tempfile::tempdir().unwrap();
        let receive = receive(dir.path());
        let bodies = dir.path().join("bodies");
        for n in 1..=5 {
            let file = File::create(bodies.join(UploadId([n; 16]).to_hex())).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(ORPHAN_SECS + 9)).unwrap();
        }
        let left = || std::fs::read_dir(&bodies).unwrap().count();
        assert_eq!((sweep(&receive, 2).await, left()), (true, 3));
        assert_eq!((sweep(&receive, 2).await, left()), (true, 1));
        assert_eq!((sweep(&receive, 2).await, left()), (false, 0));
    }
}
