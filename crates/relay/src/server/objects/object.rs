//! The body of an answer, which comes at its origin's pace and goes at its device's: [`Object`].
//!
//! Bounds: what has come and was not passed on takes `AHEAD` bytes of memory and one piece, and of an answer whose place is not wide `AHEAD_NARROW`. More of it goes to disk if there is a store and room in it, and otherwise the origin waits.

use super::file::{BodyFile, Heads, Left, ObjectFile};
use super::store::ObjectStore;
use super::window::Window;
use crate::codes;
use crate::server::places::Place;
use bytes::Bytes;
use hoop_endpoint::FlowName;
use hoop_http::Lines;
use parking_lot::Mutex;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

/// So many bytes may have come that were not passed on before any go to disk.
const AHEAD: u64 = 64 << 10;

/// The same where the device has many answers under way.
const AHEAD_NARROW: u64 = 16 << 10;

/// A device that takes such a piece within this time keeps up, as at 100 Mbit/s: nothing goes to disk for it.
const KEEPS_UP: Duration = Duration::from_millis(5);

/// So much is read from disk at once, and written at least while there is more.
const STEP: usize = 256 << 10;

/// The same where the device has many answers under way: what was read waits in memory until the device takes it.
const STEP_NARROW: usize = 16 << 10;

/// Where there was no room on disk, it is looked again after so long, or once the device has taken more.
const AGAIN: Duration = Duration::from_secs(1);

/// An answer that is fetched, and passed on.
#[derive(Debug)]
pub(crate) struct Object {
    name: FlowName,
    /// The section of the request's head.
    request: Bytes,
    state: Arc<Mutex<State>>,
    /// More has come, or the end.
    grown: watch::Sender<()>,
    /// More was passed on.
    passed: watch::Sender<()>,
    store: Option<Arc<ObjectStore>>,
    /// All of it goes to disk before it is passed on: it cannot be asked for again.
    is_kept: bool,
    /// Whoever writes has it, to the end: what is written is noted also if nobody waits for it any more.
    file: Arc<tokio::sync::Mutex<Option<ObjectFile>>>,
    /// Among its device's answers.
    place: Option<Place>,
}

#[derive(Default, Debug)]
struct State {
    window: Window,
    /// The section of the answer's head.
    answer: Option<Bytes>,
    /// The same, before any of the body is on disk that is to be there first.
    held: Option<Bytes>,
    /// All has come, or it ends with this code.
    end: Option<Result<(), u64>>,
    /// All before it was passed on.
    passed: u64,
    body: Option<BodyFile>,
}

impl Object {
    /// One of which nothing has come.
    pub(crate) fn new(name: FlowName, request: Bytes, store: Option<Arc<ObjectStore>>) -> Self {
        Self::with(name, request, store, State::default(), None)
    }

    /// The same, of an answer that cannot be asked for again: all of it goes to disk before it is passed on, as far as there is room.
    pub(crate) fn kept(name: FlowName, request: Bytes, store: Arc<ObjectStore>) -> Self {
        Self { is_kept: true, ..Self::new(name, request, Some(store)) }
    }

    /// What was left of it, for whom has all before `from`. None: something between is missing.
    pub(crate) async fn resume(name: FlowName, from: u64, store: &Arc<ObjectStore>) -> Option<Self> {
        let finding = store.clone();
        let left = spawn_blocking(move || finding.take_left(name)).await.ok()??;
        let Left { file, heads, end, is_whole } = left;
        if !(heads.first..=end).contains(&from) {
            let _ = spawn_blocking(move || file.discard()).await;
            return None;
        }
        let state = State {
            window: Window::new(from, end),
            answer: Some(heads.answer),
            held: None,
            end: is_whole.then_some(Ok(())),
            passed: from,
            body: Some(file.body()),
        };
        Some(Self::with(name, heads.request, Some(store.clone()), state, Some(file)))
    }

    fn with(
        name: FlowName,
        request: Bytes,
        store: Option<Arc<ObjectStore>>,
        state: State,
        file: Option<ObjectFile>,
    ) -> Self {
        let (grown, passed) = (watch::Sender::new(()), watch::Sender::new(()));
        let (state, file) = (Arc::new(Mutex::new(state)), Arc::new(tokio::sync::Mutex::new(file)));
        Self { name, request, state, grown, passed, store, is_kept: false, file, place: None }
    }

    /// The same, with its place among its device's answers.
    pub(crate) fn placed(self, place: Option<Place>) -> Self {
        Self { place, ..self }
    }

    fn is_wide(&self) -> bool {
        self.place.as_ref().is_none_or(Place::is_wide)
    }

    /// So much may be ahead of the device in memory.
    fn ahead_max(&self) -> u64 {
        if self.is_wide() { AHEAD } else { AHEAD_NARROW }
    }

    /// The section of the request's head.
    pub(crate) fn request(&self) -> &Bytes {
        &self.request
    }

    /// The section of the answer's head, once it has come.
    ///
    /// # Errors
    /// The code that the exchange ends with.
    pub(crate) async fn answer(&self) -> Result<Bytes, u64> {
        let mut grown = self.grown.subscribe();
        loop {
            let (answer, end, is_held) = {
                let state = self.state.lock();
                (state.answer.clone(), state.end, state.held.is_some())
            };
            match (answer, end) {
                (Some(answer), _) => return Ok(answer),
                (None, Some(Err(code))) => return Err(code),
                (None, Some(Ok(()))) if !is_held => return Ok(Bytes::new()),
                // What is held back comes before the end is told.
                (None, _) => drop(grown.changed().await),
            }
        }
    }

    /// How far the body has come, and whether that is all.
    pub(crate) fn came(&self) -> (u64, bool) {
        let state = self.state.lock();
        (state.window.end(), state.end.is_some())
    }

    // ---- who fetches ----

    /// The answer's head has come. That of one which is [kept](Self::kept) is passed on with the first of its body, or its end.
    pub(crate) fn begin(&self, answer: Bytes) {
        {
            let mut state = self.state.lock();
            match self.is_kept {
                true => state.held = Some(answer),
                false => state.answer = Some(answer),
            }
        }
        self.grown.send_replace(());
    }

    /// What was held back may be passed on.
    fn release_head(&self) {
        let mut state = self.state.lock();
        state.answer = state.answer.take().or(state.held.take());
    }

    /// More of the body has come. Returns when there is room for more.
    pub(crate) async fn push(&self, bytes: Bytes) {
        let mut passed = self.passed.subscribe();
        let is_behind = {
            let mut state = self.state.lock();
            state.window.push(bytes);
            state.window.stored() > state.passed
        };
        if self.is_kept {
            self.store_more().await;
            self.release_head();
        }
        self.grown.send_replace(());
        if !is_behind && timeout(KEEPS_UP, self.keeps_up(&mut passed)).await.is_ok() {
            return;
        }
        let most = self.ahead_max();
        while self.ahead() > most {
            passed.mark_unchanged();
            if self.ahead() > most && !self.store_more().await {
                tokio::select! {
                    _ = passed.changed() => {}
                    () = sleep(AGAIN), if self.store.is_some() => {}
                }
            }
        }
    }

    /// Returns when little is ahead of the device.
    async fn keeps_up(&self, passed: &mut watch::Receiver<()>) {
        while self.ahead() > self.ahead_max() {
            let _ = passed.changed().await;
        }
    }

    /// It ends: all has come, or it breaks off with this code.
    pub(crate) async fn end(&self, end: Result<(), u64>) {
        self.state.lock().end = Some(end);
        if self.is_kept && end.is_ok() {
            self.mark_whole().await;
            self.release_head();
        }
        self.grown.send_replace(());
        self.mark_whole().await;
    }

    /// How much in memory was not passed on, in bytes.
    fn ahead(&self) -> u64 {
        let state = self.state.lock();
        state.window.end() - state.window.stored().max(state.passed)
    }

    // ---- who passes it on ----

    /// Whether there is more from `from` on, as soon as that is known: there is, or the body ends there.
    ///
    /// # Errors
    /// The code that the exchange ends with.
    pub(crate) async fn goes_on(&self, from: u64) -> Result<bool, u64> {
        let mut grown = self.grown.subscribe();
        loop {
            {
                let state = self.state.lock();
                match (from < state.window.end(), state.end) {
                    (true, _) => return Ok(true),
                    (false, Some(end)) => return end.map(|()| false),
                    (false, None) => {}
                }
            }
            let _ = grown.changed().await;
        }
    }

    /// What lies from `from` on, where the body [goes on](Self::goes_on): at most so many bytes, and some hundred KiB.
    ///
    /// # Errors
    /// The code that the exchange ends with, if the disk fails.
    pub(crate) async fn next(&self, from: u64, most: u64) -> Result<Bytes, u64> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let (body, len) = {
            let mut state = self.state.lock();
            if let Some(mut bytes) = state.window.in_memory(from) {
                bytes.truncate(most);
                state.window.hand_out(from + bytes.len() as u64);
                return Ok(bytes);
            }
            let body = state.body.clone().ok_or(codes::BROKEN)?;
            (body, state.window.stored().saturating_sub(from))
        };
        let step = if self.is_wide() { STEP } else { STEP_NARROW };
        read(body, from, len.min(most.min(step) as u64)).await
    }

    /// All before `offset` was passed on.
    pub(crate) fn passed(&self, offset: u64) {
        self.state.lock().passed = offset;
        self.passed.send_replace(());
    }

    /// What lies before `offset` is needed no more.
    pub(crate) fn release(&self, offset: u64) {
        self.state.lock().window.release(offset);
    }

    /// Puts all on disk that is needed, as far as there is room.
    pub(crate) async fn settle(&self) {
        while !self.is_settled() && self.store_more().await {}
    }

    fn is_settled(&self) -> bool {
        let state = self.state.lock();
        state.window.stored() == state.window.end()
    }

    /// Returns once a device has been away for so long that it [may be left](Self::leave); never, if there is no disk.
    pub(crate) async fn long_away(&self) {
        match &self.store {
            Some(store) => sleep(store.parks_after()).await,
            None => pending().await,
        }
    }

    /// Returns once all of it has come, and is on disk.
    pub(crate) async fn is_whole_on_disk(&self) {
        let mut grown = self.grown.subscribe();
        loop {
            let end = self.state.lock().end;
            if end == Some(Ok(())) {
                self.settle().await;
                // Also if nothing was left to settle, and again where that failed.
                self.mark_whole().await;
                if self.file.lock().await.as_ref().is_some_and(ObjectFile::is_whole) {
                    return;
                }
            }
            tokio::select! {
                _ = grown.changed() => {}
                () = sleep(AGAIN), if end == Some(Ok(())) => {}
            }
        }
    }

    /// Leaves what is on disk of it to whoever [asks](Self::resume).
    pub(crate) async fn leave(self) {
        drop(self.file.lock_owned().await.take());
    }

    /// Removes it from the disk.
    pub(crate) async fn discard(self) {
        let mut file = self.file.lock_owned().await;
        if let Some(file) = file.take() {
            let _ = spawn_blocking(move || file.discard()).await;
        }
    }

    // ---- the disk ----

    /// Puts the answer's head on disk before it begins, if it is [kept](Self::kept).
    pub(crate) async fn store_head(&self, answer: Bytes) {
        let Some(store) = self.store.clone().filter(|_| self.is_kept) else { return };
        let mut file = self.file.clone().lock_owned().await;
        let (state, name, request) = (self.state.clone(), self.name, self.request.clone());
        let stored = spawn_blocking(move || {
            let heads = Heads { request, answer, first: 0 };
            if write(&store, name, &mut file, &heads, (0, &[]), 0) {
                state.lock().body = file.as_ref().map(ObjectFile::body);
            }
        });
        let _ = stored.await;
    }

    /// Puts some on disk of what is in memory alone. False: there is no room, or no disk.
    async fn store_more(&self) -> bool {
        let Some(store) = self.store.clone() else { return false };
        let mut file = self.file.clone().lock_owned().await;
        let (state, name, request) = (self.state.clone(), self.name, self.request.clone());
        let stored = spawn_blocking(move || {
            let (start, pieces, released, answer) = {
                let state = state.lock();
                let (start, pieces) = state.window.unstored(STEP);
                (start, pieces, state.window.released(), state.answer.clone().or(state.held.clone()))
            };
            let Some(answer) = answer else { return false };
            let heads = Heads { request, answer, first: start };
            let is_put = pieces.is_empty() || write(&store, name, &mut file, &heads, (start, &pieces), released);
            if is_put {
                let mut state = state.lock();
                state.body = file.as_ref().map(ObjectFile::body);
                state.window.store(start + pieces.iter().map(|piece| piece.len() as u64).sum::<u64>());
            }
            mark_if_whole(&state, &mut file);
            is_put
        });
        stored.await.unwrap_or(false)
    }

    /// Notes that all is there, once it is.
    async fn mark_whole(&self) {
        let (mut file, state) = (self.file.clone().lock_owned().await, self.state.clone());
        if file.is_some() {
            let _ = spawn_blocking(move || mark_if_whole(&state, &mut file)).await;
        }
    }
}

/// Notes that all is there, once it is, and where the body is read from.
fn mark_if_whole(state: &Mutex<State>, file: &mut Option<ObjectFile>) {
    let Some(file) = file else { return };
    let end = {
        let state = state.lock();
        let is_whole = state.end == Some(Ok(())) && state.window.stored() == state.window.end();
        is_whole.then(|| state.window.end())
    };
    end.into_iter().for_each(|end| file.mark_whole(end));
    state.lock().body = Some(file.body());
}

/// Reads so many bytes, [`STEP`] at most.
async fn read(body: BodyFile, from: u64, len: u64) -> Result<Bytes, u64> {
    static LINES: Lines = Lines::new();
    let len = len as usize;
    let read = spawn_blocking(move || {
        let mut bytes = vec![0; len];
        body.read_exact_at(&mut bytes, from).map(|()| bytes.into())
    });
    read.await.map_err(io::Error::other).flatten().map_err(|error| {
        LINES.warn("an answer on disk cannot be read", &error);
        codes::BROKEN
    })
}

/// Makes the file if there is none, and puts the pieces there. Whether there was room.
fn write(
    store: &ObjectStore,
    name: FlowName,
    file: &mut Option<ObjectFile>,
    heads: &Heads,
    (start, pieces): (u64, &[Bytes]),
    released: u64,
) -> bool {
    static LINES: Lines = Lines::new();
    let fail = |error: io::Error| LINES.warn("an answer cannot be put on disk", &error);
    if file.is_none() {
        *file = store.create(name, heads).map_err(fail).ok().flatten();
    }
    let Some(file) = file else { return false };
    file.release(released);
    file.put(start, pieces).map_err(fail).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::super::room::StoreConfig;
    use super::*;
    use crate::server::places::{Places, WIDE};
    use crate::server::reserve::Reserve;
    use hoop_endpoint::{DeviceId, FlowId};
    use std::path::Path;

    const NAME: FlowName = FlowName { device: DeviceId([1; 20]), flow: FlowId(7) };
    const PIECE: usize = 50_000;

    fn store(folder: &Path, bytes: u64) -> Arc<ObjectStore> {
        let config = StoreConfig { bytes, bytes_of_device: bytes, ..StoreConfig::new(folder) };
        ObjectStore::open(&config, Reserve::of(folder), Places::new(100, 100), |device| device == NAME.device).unwrap()
    }

    fn object(store: Option<Arc<ObjectStore>>) -> Object {
        let object = Object::new(NAME, Bytes::from_static(b"request"), store);
        object.begin(Bytes::from_static(b"answer"));
        object
    }

    fn piece(number: usize) -> Bytes {
        (0..PIECE).map(|at| ((number * PIECE + at) / 3) as u8).collect()
    }

    /// Pushes so many pieces, and returns how many found room at once.
    async fn push(object: &Object, pieces: std::ops::Range<usize>) -> usize {
        let mut pushed = 0;
        for number in pieces {
            if timeout(Duration::from_secs(2), object.push(piece(number))).await.is_err() {
                break;
            }
            pushed += 1;
        }
        pushed
    }

    /// Reads on from `at`, to the end or until nothing comes.
    async fn read_on(object: &Object, mut at: u64) -> Vec<u8> {
        let mut all = Vec::new();
        while timeout(Duration::from_secs(2), object.goes_on(at)).await == Ok(Ok(true)) {
            let bytes = object.next(at, u64::MAX).await.unwrap();
            at += bytes.len() as u64;
            all.extend_from_slice(&bytes);
            object.passed(at);
            object.release(at);
        }
        all
    }

    #[tokio::test]
    async fn without_a_disk_an_origin_waits_for_the_device() {
        let object = object(None);
        assert_eq!(push(&object, 0..20).await, 1);
        assert_eq!(read_on(&object, 0).await.len(), 2 * PIECE);
    }

    #[tokio::test]
    async fn of_many_answers_of_a_device_each_has_little_in_memory() {
        let places = Places::new(1_000, 1_000);
        let _others: Vec<_> = (0..WIDE).map(|_| places.take_now(NAME.device).unwrap()).collect();
        let narrow = |store| object(store).placed(places.take_now(NAME.device));
        let without_disk = narrow(None);
        let small = || Bytes::from(vec![7; 8 << 10]);
        let mut pushed = 0;
        while timeout(Duration::from_millis(20), without_disk.push(small())).await.is_ok() {
            pushed += 1;
        }
        assert_eq!(pushed, 2, "16 KiB");
        let folder = tempfile::tempdir().unwrap();
        let on_disk = narrow(Some(store(folder.path(), 3 << 20)));
        assert_eq!(push(&on_disk, 0..20).await, 20);
        on_disk.settle().await;
        assert_eq!(on_disk.next(0, u64::MAX).await.unwrap().len(), STEP_NARROW);
        assert_eq!(on_disk.next(0, 1_000).await.unwrap().len(), 1_000);
        assert_eq!(read_on(&on_disk, 0).await.len(), 20 * PIECE);
    }

    #[tokio::test]
    async fn a_full_disk_holds_an_origin_back_until_the_device_takes_some() {
        let folder = tempfile::tempdir().unwrap();
        let object = object(Some(store(folder.path(), 3 << 20)));
        let pushed = push(&object, 0..200).await;
        assert!((50..65).contains(&pushed), "{pushed} pieces of 50 kB");
        let first = timeout(Duration::from_secs(5), async {
            let (mut at, mut all) = (0, Vec::new());
            while all.len() < 2_000_000 {
                assert!(object.goes_on(at).await.unwrap());
                let bytes = object.next(at, u64::MAX).await.unwrap();
                at += bytes.len() as u64;
                all.extend_from_slice(&bytes);
                object.passed(at);
                object.release(at);
            }
            all
        });
        let first = first.await.unwrap();
        // The piece that found no room is there all the same.
        let more = push(&object, pushed + 1..pushed + 21).await;
        assert_eq!(more, 20, "what was released has made room");
        object.end(Ok(())).await;
        let rest = read_on(&object, first.len() as u64).await;
        let whole: Vec<u8> = (0..pushed + 21).flat_map(piece).collect();
        assert!([first, rest].concat() == whole);
    }

    #[tokio::test]
    async fn what_a_process_has_left_is_there_for_one_device_once() {
        let folder = tempfile::tempdir().unwrap();
        {
            let object = object(Some(store(folder.path(), 1 << 30)));
            assert_eq!(push(&object, 0..40).await, 40);
            object.settle().await;
            object.end(Ok(())).await;
        }
        let other = FlowName { device: DeviceId([2; 20]), ..NAME };
        let again = store(folder.path(), 1 << 30);
        assert!(again.usage().0 >= 40 * PIECE as u64);
        assert!(Object::resume(other, 0, &again).await.is_none());
        let object = Object::resume(NAME, 70_000, &again).await.unwrap();
        assert!(Object::resume(NAME, 70_000, &again).await.is_none());
        assert_eq!(object.request(), &Bytes::from_static(b"request"));
        assert_eq!(
            (object.answer().await, object.came()),
            (Ok(Bytes::from_static(b"answer")), (40 * PIECE as u64, true))
        );
        let whole: Vec<u8> = (0..40).flat_map(piece).collect();
        assert!(read_on(&object, 70_000).await == whole[70_000..]);
        object.discard().await;
        assert_eq!(again.usage(), (0, 0));
    }

    /// The file of an answer that was passed on to its end lacked the last of it, and nothing of it was found by whoever had all.
    #[tokio::test]
    async fn who_has_all_of_an_answer_finds_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), 1 << 30);
        let object = object(Some(store.clone()));
        push(&object, 0..2).await;
        object.settle().await;
        push(&object, 2..3).await;
        let end = 3 * PIECE as u64;
        assert_eq!(read_on(&object, 0).await.len() as u64, end);
        object.end(Ok(())).await;
        object.is_whole_on_disk().await;
        object.leave().await;
        let again = Object::resume(NAME, end, &store).await.expect("it is there");
        assert_eq!((again.goes_on(end).await, again.came()), (Ok(false), (end, true)));
        again.discard().await;
        assert_eq!(store.usage(), (0, 0));
    }

    /// A relay counts more of what it finds than the one before, which may have used up its room.
    #[tokio::test]
    async fn what_an_earlier_process_has_let_in_stays_whatever_the_limits() {
        let folder = tempfile::tempdir().unwrap();
        let object = object(Some(store(folder.path(), 1 << 30)));
        push(&object, 0..4).await;
        object.settle().await;
        drop(object);
        let again = store(folder.path(), 1);
        assert!(again.usage().0 > 1);
        let found = Object::resume(NAME, 0, &again).await.expect("it is there");
        assert!(!Object::new(NAME, Bytes::new(), Some(again.clone())).store_more().await, "nothing new is let in");
        found.discard().await;
        assert_eq!(again.usage(), (0, 0));
    }

    #[tokio::test]
    async fn what_is_left_twice_counts_once() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), 1 << 30);
        for _ in 0..2 {
            let object = object(Some(store.clone()));
            push(&object, 0..4).await;
            object.settle().await;
            object.end(Ok(())).await;
            object.leave().await;
        }
        store.forget(|device| device == NAME.device);
        assert_eq!(store.usage(), (0, 0));
    }

    #[tokio::test]
    async fn what_is_left_of_devices_that_are_gone_or_cannot_be_used_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let leave = async || {
            let object = object(Some(store(folder.path(), 1 << 30)));
            push(&object, 0..4).await;
            object.settle().await;
        };
        let files = || {
            let devices = std::fs::read_dir(folder.path().join("objects")).unwrap().flatten();
            devices.flat_map(|device| std::fs::read_dir(device.path()).unwrap()).count()
        };
        leave().await;
        assert_eq!(files(), 2);
        let (config, reserve) = (StoreConfig::new(folder.path()), Reserve::of(folder.path()));
        drop(ObjectStore::open(&config, reserve, Places::new(1, 1), |_| false).unwrap());
        assert_eq!(files(), 0, "the device is not known any more");
        leave().await;
        let kept = store(folder.path(), 1 << 30);
        kept.forget(|_| false);
        assert_eq!(files(), 2);
        kept.forget(|device| device == NAME.device);
        assert_eq!((files(), kept.usage()), (0, (0, 0)));
        drop(kept);
        leave().await;
        let device = std::fs::read_dir(folder.path().join("objects")).unwrap().next().unwrap().unwrap().path();
        std::fs::remove_file(device.join("0000000000000007.head")).unwrap();
        let again = store(folder.path(), 1 << 30);
        assert!(Object::resume(NAME, 0, &again).await.is_none());
        assert_eq!(files(), 0, "nobody knows what it was");
    }

    #[tokio::test]
    async fn what_is_let_go_of_in_the_middle_of_a_write_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), 1 << 30);
        for number in 0..100 {
            let object = Object::new(NAME, Bytes::from_static(b"request"), Some(store.clone()));
            object.begin(Bytes::from_static(b"answer"));
            let storing = async {
                object.push(piece(0)).await;
                object.push(piece(1)).await;
                object.push(piece(2)).await;
            };
            // Polled so often and dropped, whatever a thread does with it.
            let mut storing = Box::pin(storing);
            for _ in 0..number % 10 {
                if timeout(Duration::from_millis(1), &mut storing).await.is_ok() {
                    break;
                }
            }
            drop(storing);
            object.discard().await;
        }
        assert_eq!(store.usage(), (0, 0));
        let devices = std::fs::read_dir(folder.path().join("objects")).unwrap().flatten();
        assert_eq!(devices.flat_map(|device| std::fs::read_dir(device.path()).unwrap()).count(), 0);
    }
}
