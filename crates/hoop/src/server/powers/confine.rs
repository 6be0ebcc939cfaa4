//! What a role may touch of the file system once it has read its settings: [`confine`], by Landlock (Linux 5.13 and later).
//!
//! The systemd units keep a role from everything else anyway. This holds for a role that somebody begins by hand, too, as a user who has a home: whoever takes
//! the process over reads no `~/.ssh`, changes no file but the role's own, and begins no program.

use std::path::Path;

/// What every program reads here: libraries, names, certificates, zones, interfaces. `/nix` and `/gnu` are where two systems keep all of these.
#[cfg(target_os = "linux")]
const SYSTEM: [&str; 12] = [
    "/bin",
    "/dev",
    "/etc",
    "/gnu/store",
    "/lib",
    "/lib64",
    "/nix/store",
    "/proc",
    "/run",
    "/sys",
    "/usr",
    "/var/lib/ca-certificates",
];

/// AckPolicy this process, and the threads that it will have, from all files but these: `state`, a folder in which it may do anything but run programs, and for
/// reading alone the system's own files and the folders that the `named` files are in, so that a certificate may be renewed beside the old one. A `state` that is
/// not there is made.
///
/// To be called while there is one thread. A kernel without Landlock restricts nothing, and one that knows less of it restricts less; the log says which.
#[cfg(target_os = "linux")]
pub fn confine(state: Option<&Path>, named: &[&Path]) {
    // A folder that is refused is refused again when the role opens it, and the role ends.
    if state.is_some_and(|state| hoop_files::folder(state).is_err()) {
        return;
    }
    use landlock::RulesetStatus::{FullyEnforced, NotEnforced, PartiallyEnforced};
    match linux::confine(state, named) {
        Ok(FullyEnforced) => tracing::debug!("confined to its own files"),
        Ok(PartiallyEnforced) => tracing::debug!("confined to its own files, as far as this kernel can"),
        Ok(NotEnforced) => tracing::debug!("not confined to its own files: this kernel has no Landlock"),
        Err(error) => tracing::warn!(%error, "not confined to its own files"),
    }
}

/// Elsewhere there is nothing of the kind.
#[cfg(not(target_os = "linux"))]
pub fn confine(_state: Option<&Path>, _named: &[&Path]) {}

#[cfg(target_os = "linux")]
mod linux {
    use super::SYSTEM;
    use landlock::{
        ABI, Access as _, AccessFs, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus,
        path_beneath_rules,
    };
    use std::path::{Path, PathBuf};

    /// What the rules speak of; what a later kernel could restrict besides is left as it was.
    const KNOWN: ABI = ABI::V6;

    pub fn confine(state: Option<&Path>, named: &[&Path]) -> Result<RulesetStatus, RulesetError> {
        let reads = AccessFs::ReadFile | AccessFs::ReadDir;
        let read: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).chain(beside(named)).collect();
        let status = Ruleset::default()
            .handle_access(AccessFs::from_all(KNOWN))?
            .create()?
            .add_rules(path_beneath_rules(read, reads))?
            .add_rules(path_beneath_rules(["/dev/null"], reads | AccessFs::WriteFile))?
            .add_rules(path_beneath_rules(state, AccessFs::from_all(KNOWN) & !AccessFs::Execute))?
            .restrict_self()?;
        Ok(status.ruleset)
    }

    /// The folders of the files: as they are named, and where links lead. A router's `/etc/resolv.conf` is a link to `/tmp`.
    fn beside(named: &[&Path]) -> Vec<PathBuf> {
        let names = named.iter().copied().chain(["/etc/resolv.conf", "/etc/localtime"].map(Path::new));
        let both = names.flat_map(|path| [std::path::absolute(path).ok(), std::fs::canonicalize(path).ok()]);
        let mut folders: Vec<PathBuf> = both
            .flatten()
            .filter_map(|path| Some(path.parent()?.to_owned()))
            .filter(|folder| folder != Path::new("/"))
            .collect();
        folders.sort();
        folders.dedup();
        folders
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::io::ErrorKind::PermissionDenied;
        use std::{fs, thread};

        /// Landlock binds the thread that asks for it.
        #[test]
        fn nothing_but_its_own_files_is_changed_and_no_other_folder_is_read() {
            let world = tempfile::tempdir().unwrap();
            let at = |name: &str| world.path().join(name);
            for name in ["state", "named", "other"] {
                fs::create_dir(at(name)).unwrap();
                fs::write(at(name).join("file"), name).unwrap();
            }
            let confined = || {
                if confine(Some(&at("state")), &[&at("named/file")]).unwrap() == RulesetStatus::NotEnforced {
                    println!("not tested: this kernel has no Landlock");
                    return;
                }
                fs::write(at("state/new"), "").unwrap();
                fs::rename(at("state/new"), at("state/newer")).unwrap();
                fs::remove_file(at("state/newer")).unwrap();
                assert_eq!(fs::read_to_string(at("named/file")).unwrap(), "named");
                let refused = [
                    ("read", fs::read(at("other/file")).map(drop)),
                    ("list", fs::read_dir(at("other")).map(drop)),
                    ("write", fs::write(at("named/file"), "changed")),
                    ("make", fs::write(at("other/new"), "")),
                    ("remove", fs::remove_file(at("other/file"))),
                    ("run", std::process::Command::new("/bin/true").status().map(drop)),
                ];
                for (what, outcome) in refused {
                    assert_eq!(outcome.map_err(|error| error.kind()), Err(PermissionDenied), "{what}");
                }
            };
            thread::scope(|scope| scope.spawn(confined).join()).unwrap();
            assert_eq!(fs::read_to_string(at("other/file")).unwrap(), "other");
        }

        #[test]
        fn a_link_is_followed_and_its_own_folder_counts_too() {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().canonicalize().unwrap();
            for name in ["live", "archive"] {
                fs::create_dir(root.join(name)).unwrap();
            }
            fs::write(root.join("archive/key1.pem"), "").unwrap();
            std::os::unix::fs::symlink("../archive/key1.pem", root.join("live/key.pem")).unwrap();
            let folders = beside(&[&root.join("live/key.pem"), Path::new("/only.pem")]);
            assert!(folders.contains(&root.join("live")) && folders.contains(&root.join("archive")), "{folders:?}");
            assert!(!folders.contains(&PathBuf::from("/")), "{folders:?}");
        }
    }
}
