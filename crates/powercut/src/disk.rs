//! Written and synced, kept apart: [`Disk`]. Pure but for reading a folder at the beginning and writing one at the end.

use crate::record::Record;
use rand_core::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

/// A file or a folder, whatever its names are and whichever inode it had.
type Id = usize;

/// A name in a folder.
type Name = (Id, String);

/// The root folder.
const ROOT: Id = 0;

/// Which syncs count. The default: all. A test that ignores some shows that it would notice if they were missing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Syncs of these do nothing: told the path, and whether it is a folder.
    pub ignored: Option<fn(&Path, bool) -> bool>,
}

impl Rules {
    /// All syncs count, but those of what `ignored` names.
    pub const fn ignoring(ignored: fn(&Path, bool) -> bool) -> Self {
        Self { ignored: Some(ignored) }
    }
}

/// What happened to a file and is not synced.
#[derive(Clone, Debug)]
enum Edit {
    Write(u64, Vec<u8>),
    Hole(u64, u64),
    Length(u64),
    AtLeast(u64),
}

/// What happened to names and is not synced.
#[derive(Clone, Debug)]
struct Renaming {
    number: usize,
    gone: Option<Name>,
    new: Option<(Name, Id)>,
}

impl Renaming {
    fn touches(&self, folder: Id) -> bool {
        self.gone.iter().chain(self.new.iter().map(|(name, _)| name)).any(|name| name.0 == folder)
    }

    fn apply(&self, names: &mut BTreeMap<Name, Id>) {
        if let Some(name) = &self.gone {
            names.remove(name);
        }
        if let Some((name, id)) = &self.new {
            names.insert(name.clone(), *id);
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Object {
    is_folder: bool,
    /// The latest, for [`Rules`].
    path: PathBuf,
    synced: Vec<u8>,
    edits: Vec<(usize, Edit)>,
    /// Where the syncs that run have begun, by number.
    syncing: BTreeMap<u64, usize>,
}

/// A folder as the kernel shows it, and as it would be found after a cut.
#[derive(Clone, Debug)]
pub struct Disk {
    objects: Vec<Object>,
    inodes: BTreeMap<u64, Id>,
    /// The names as the kernel shows them.
    shown: BTreeMap<Name, Id>,
    /// The names that are synced.
    synced: BTreeMap<Name, Id>,
    renamings: Vec<Renaming>,
}

impl Disk {
    /// A folder as it stands, all of it synced.
    pub fn of(root: &Path) -> io::Result<Self> {
        let mut disk = Self {
            objects: vec![Object { is_folder: true, ..Object::default() }],
            inodes: [(fs::metadata(root)?.ino(), ROOT)].into(),
            shown: BTreeMap::new(),
            synced: BTreeMap::new(),
            renamings: Vec::new(),
        };
        disk.read(root, Path::new(""), ROOT)?;
        disk.synced.clone_from(&disk.shown);
        Ok(disk)
    }

    fn read(&mut self, root: &Path, folder: &Path, id: Id) -> io::Result<()> {
        for entry in fs::read_dir(root.join(folder))? {
            let entry = entry?;
            let (path, metadata) = (folder.join(entry.file_name()), entry.metadata()?);
            let child = self.object(path.clone(), metadata.ino(), metadata.is_dir());
            self.shown.insert((id, entry.file_name().to_string_lossy().into_owned()), child);
            match metadata.is_dir() {
                true => self.read(root, &path, child)?,
                false => self.objects[child].synced = fs::read(entry.path())?,
            }
        }
        Ok(())
    }

    /// A new object; what had the inode before has lost it.
    fn object(&mut self, path: PathBuf, inode: u64, is_folder: bool) -> Id {
        self.objects.push(Object { is_folder, path, ..Object::default() });
        self.inodes.insert(inode, self.objects.len() - 1);
        self.objects.len() - 1
    }

    /// Where a path leads, as the kernel shows it: its folder and its name there.
    fn name(&self, path: &Path) -> Name {
        let parts: Vec<String> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let (last, folders) = parts.split_last().expect("the root has no name of its own");
        let step = |folder, part: &String| self.shown[&(folder, part.clone())];
        (folders.iter().fold(ROOT, step), last.clone())
    }

    /// Whether this one is left out: SQLite makes it anew.
    fn is_left_out(path: &Path) -> bool {
        path.to_string_lossy().ends_with("-shm")
    }

    fn rename(&mut self, number: usize, gone: Option<Name>, new: Option<(Name, Id)>) {
        let renaming = Renaming { number, gone, new };
        renaming.apply(&mut self.shown);
        self.renamings.push(renaming);
    }

    fn edit(&mut self, number: usize, inode: u64, edit: Edit) {
        self.objects[self.inodes[&inode]].edits.push((number, edit));
    }

    /// Takes one record.
    pub fn take(&mut self, number: usize, record: &Record, rules: &Rules) {
        match record {
            Record::Create { path, inode } | Record::MakeFolder { path, inode } => {
                let id = self.object(path.clone(), *inode, matches!(record, Record::MakeFolder { .. }));
                let name = self.name(path);
                self.rename(number, None, Some((name, id)));
            }
            Record::Write { inode, at, data } => self.edit(number, *inode, Edit::Write(*at, data.clone())),
            Record::Hole { inode, at, len } => self.edit(number, *inode, Edit::Hole(*at, *len)),
            Record::Truncate { inode, len } => self.edit(number, *inode, Edit::Length(*len)),
            Record::Extend { inode, len } => self.edit(number, *inode, Edit::AtLeast(*len)),
            Record::Rename { from, to } => {
                let (from, name) = (self.name(from), self.name(to));
                let id = self.shown[&from];
                self.objects[id].path.clone_from(to);
                self.rename(number, Some(from), Some((name, id)));
            }
            Record::Remove { path } => {
                let name = self.name(path);
                self.rename(number, Some(name), None);
            }
            Record::SyncBegin { inode, number: sync } => {
                self.objects[self.inodes[inode]].syncing.insert(*sync, number);
            }
            Record::SyncEnd { inode, number: sync } => {
                let id = self.inodes[inode];
                // The inode is another file's by now.
                let Some(begun) = self.objects[id].syncing.remove(sync) else { return };
                let object = &self.objects[id];
                if !rules.ignored.is_some_and(|ignored| ignored(&object.path, object.is_folder)) {
                    self.sync(id, begun);
                }
            }
            Record::Note(_) => {}
        }
    }

    fn sync(&mut self, id: Id, begun: usize) {
        let object = &mut self.objects[id];
        for (_, edit) in object.edits.extract_if(.., |(number, _)| *number < begun) {
            apply(&mut object.synced, &edit, |_| true);
        }
        let synced = &mut self.synced;
        self.renamings.retain(|renaming| {
            let is_covered = renaming.number < begun && renaming.touches(id);
            if is_covered {
                renaming.apply(synced);
            }
            !is_covered
        });
    }

    /// Writes what a cut leaves: what is synced, and of the rest what the dice say.
    pub fn leave(&self, rng: &mut impl Rng, into: &Path) -> io::Result<()> {
        let mut names = self.synced.clone();
        // File systems with a log keep the order of names; nothing promises it.
        let keep = Keep::roll(rng);
        if rng.next_u32().is_multiple_of(2) {
            let first =
                if self.renamings.is_empty() { 0 } else { rng.next_u32() as usize % (self.renamings.len() + 1) };
            self.renamings[..first].iter().for_each(|renaming| renaming.apply(&mut names));
        } else {
            self.renamings.iter().filter(|_| keep.keeps(rng)).for_each(|renaming| renaming.apply(&mut names));
        }
        let mut seen = BTreeSet::new();
        self.leave_folder(ROOT, &names, rng, into, &mut seen)
    }

    fn leave_folder(
        &self,
        folder: Id,
        names: &BTreeMap<Name, Id>,
        rng: &mut impl Rng,
        into: &Path,
        seen: &mut BTreeSet<Id>,
    ) -> io::Result<()> {
        for ((_, name), id) in names.range((folder, String::new())..(folder + 1, String::new())) {
            let (object, path) = (&self.objects[*id], into.join(name));
            // A file has one name; of a renaming that was cut in two the second stands.
            if Self::is_left_out(&path) || !seen.insert(*id) {
                continue;
            }
            if object.is_folder {
                fs::create_dir(&path)?;
                self.leave_folder(*id, names, rng, &path, seen)?;
            } else {
                write_sparse(&path, &object.left(rng))?;
            }
        }
        Ok(())
    }
}

impl Object {
    /// The bytes after a cut.
    fn left(&self, rng: &mut impl Rng) -> Vec<u8> {
        let (keep, mut bytes) = (Keep::roll(rng), self.synced.clone());
        for (_, edit) in &self.edits {
            match edit {
                Edit::Write(at, data) => {
                    // A length may have grown before its bytes came.
                    if rng.next_u32().is_multiple_of(4) {
                        apply(&mut bytes, &Edit::AtLeast(at + data.len() as u64), |_| true);
                    }
                    apply(&mut bytes, edit, |_| keep.keeps(rng));
                }
                Edit::Hole(..) => apply(&mut bytes, edit, |_| keep.keeps(rng)),
                Edit::Length(_) | Edit::AtLeast(_) if keep.keeps(rng) => apply(&mut bytes, edit, |_| true),
                Edit::Length(_) | Edit::AtLeast(_) => {}
            }
        }
        bytes
    }
}

/// How much of what is not synced is kept, in 256ths: nothing, some, or all.
#[derive(Clone, Copy)]
struct Keep(u32);

impl Keep {
    fn roll(rng: &mut impl Rng) -> Self {
        Self([0, 0, 20, 128, 128, 236, 256][rng.next_u32() as usize % 7])
    }

    fn keeps(self, rng: &mut impl Rng) -> bool {
        rng.next_u32() % 256 < self.0
    }
}

/// Does one edit; of a write or a hole those sectors alone that are kept.
fn apply(bytes: &mut Vec<u8>, edit: &Edit, mut keeps: impl FnMut(usize) -> bool) {
    match edit {
        Edit::Length(len) => bytes.resize(*len as usize, 0),
        Edit::AtLeast(len) => bytes.resize(bytes.len().max(*len as usize), 0),
        Edit::Hole(at, len) => {
            let end = at.saturating_add(*len).min(bytes.len() as u64);
            for (from, to) in sectors(*at, end).filter(|(from, _)| keeps(from / SECTOR)) {
                bytes[from..to].fill(0);
            }
        }
        Edit::Write(at, data) => {
            let start = *at as usize;
            for (from, to) in sectors(*at, at + data.len() as u64).filter(|(from, _)| keeps(from / SECTOR)) {
                bytes.resize(bytes.len().max(to), 0);
                bytes[from..to].copy_from_slice(&data[from - start..to - start]);
            }
        }
    }
}

/// The sectors of a range, or what of them lies in it.
fn sectors(start: u64, end: u64) -> impl Iterator<Item = (usize, usize)> {
    let (start, end) = (start as usize, end.max(start) as usize);
    let from = move |sector: usize| (sector * SECTOR).max(start);
    (start / SECTOR..end.div_ceil(SECTOR)).map(move |sector| (from(sector), from(sector + 1).min(end)))
}

/// Writes a file that may be mostly zeros.
fn write_sparse(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.set_len(bytes.len() as u64)?;
    for (number, page) in bytes.chunks(4096).enumerate().filter(|(_, page)| page.iter().any(|byte| *byte != 0)) {
        file.seek(SeekFrom::Start(number as u64 * 4096))?;
        file.write_all(page)?;
    }
    Ok(())
}
