//! Another user for a role that root began: [`become_user`], and [`give_up_ports`] once it listens.
//!
//! The systemd units need none of it: they begin a role as its own user.

use crate::base::exit::{Exit, Failure};
use std::path::Path;

/// Becomes the user of that name, in its groups alone. What stays of root's powers is to listen at a port below 1024, until [`give_up_ports`]. A
/// state folder that is not there yet is made, and is the user's.
///
/// To be called while there is one thread, and before anything is opened that the user is to have.
///
/// # Errors
/// If there is no such user, it is root, or this process is not root's; if the folder cannot be made.
#[cfg(target_os = "linux")]
pub fn become_user(name: Option<&str>, state: Option<&Path>) -> Result<(), Failure> {
    use nix::unistd::{Uid, User};
    let Some(name) = name else { return Ok(()) };
    let found = User::from_name(name)
        .map_err(|error| Failure::new(Exit::Usage, format!("cannot look up --user {name}"), error))?;
    let user = found.ok_or_else(|| {
        let hint = "make the user with `adduser --system` or dist/sysusers.d/hoop.conf";
        Failure::usage(format!("--user {name}: there is no such user")).hint(hint)
    })?;
    if user.uid.is_root() {
        return Err(Failure::usage(format!("--user {name} is root, which no role needs")));
    }
    if Uid::effective() == user.uid {
        return Ok(());
    }
    if !Uid::effective().is_root() {
        return Err(Failure::usage(format!("--user {name}: only root can become another user")));
    }
    if let Some(state) = state.filter(|state| !state.exists()) {
        linux::make(state, &user)
            .map_err(|error| Failure::new(Exit::File, format!("cannot make {}", state.display()), error))?;
    }
    linux::change(&user).map_err(|error| Failure::new(Exit::Unexpected, format!("--user {name}"), error))
}

/// Elsewhere the system begins a role as the user that it is to be.
///
/// # Errors
/// If a user is named.
#[cfg(not(target_os = "linux"))]
pub fn become_user(name: Option<&str>, _state: Option<&Path>) -> Result<(), Failure> {
    match name {
        Some(_) => Err(Failure::usage("--user works on Linux only")),
        None => Ok(()),
    }
}

/// Gives up what is left of root's powers, if this is not root. Of this thread; threads that serve call it as they begin.
#[cfg(target_os = "linux")]
pub fn give_up_ports() {
    use rustix::thread::{CapabilitySet, set_capabilities};
    if !rustix::process::geteuid().is_root() {
        // It can always be given up.
        let _ = set_capabilities(None, linux::only(CapabilitySet::empty()));
    }
}

#[cfg(not(target_os = "linux"))]
pub fn give_up_ports() {}

#[cfg(target_os = "linux")]
mod linux {
    use nix::unistd::{Uid, User, initgroups, setresgid, setresuid};
    use rustix::thread::{
        CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities, set_no_new_privs,
    };
    use std::ffi::CString;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, fchown};
    use std::path::Path;
    use std::{fs, io};

    pub fn change(user: &User) -> io::Result<()> {
        let ports = capabilities(None)?.permitted & CapabilitySet::NET_BIND_SERVICE;
        initgroups(&CString::new(user.name.as_str())?, user.gid)?;
        set_keep_capabilities(true)?;
        setresgid(user.gid, user.gid, user.gid)?;
        setresuid(user.uid, user.uid, user.uid)?;
        set_capabilities(None, only(ports))?;
        Ok(set_no_new_privs(true)?)
    }

    /// Makes a folder that is the user's. Those above it are there: made by root for root alone they would lead nowhere.
    pub fn make(folder: &Path, user: &User) -> io::Result<()> {
        fs::DirBuilder::new().mode(hoop_files::FOLDER_MODE).create(folder)?;
        give(folder, user)
    }

    /// Gives the user a folder that root has just made. Whoever may write above it may have put something else in its place since: only an empty folder of root's own is given away.
    fn give(folder: &Path, user: &User) -> io::Result<()> {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let opened = fs::OpenOptions::new().read(true).custom_flags(flags).open(folder)?;
        let is = opened.metadata()?;
        let is_ours = is.uid() == Uid::effective().as_raw() && is.mode() & 0o7777 == hoop_files::FOLDER_MODE;
        if !is_ours || fs::read_dir(format!("/proc/self/fd/{}", opened.as_raw_fd()))?.next().is_some() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "someone else has put it there in the meantime",
            ));
        }
        fchown(&opened, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
    }

    /// These capabilities, and none to inherit.
    pub const fn only(these: CapabilitySet) -> CapabilitySets {
        CapabilitySets { effective: these, permitted: these, inheritable: CapabilitySet::empty() }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn only_an_empty_folder_of_ones_own_is_given_away() {
            let place = tempfile::tempdir().unwrap();
            let at = |name: &str| place.path().join(name);
            let me = User::from_uid(Uid::effective()).unwrap().unwrap();
            make(&at("made"), &me).unwrap();
            fs::DirBuilder::new().mode(0o700).create(at("target")).unwrap();
            std::os::unix::fs::symlink(at("target"), at("link")).unwrap();
            assert!(give(&at("link"), &me).is_err(), "what a link leads to is not its");
            fs::write(at("target/file"), "x").unwrap();
            assert!(give(&at("target"), &me).is_err(), "it is not the folder that was made");
            fs::write(at("file"), "x").unwrap();
            assert!(give(&at("file"), &me).is_err());
            fs::DirBuilder::new().mode(0o755).create(at("wide")).unwrap();
            assert!(give(&at("wide"), &me).is_err());
            assert!(give(&at("made"), &me).is_ok());
        }
    }
}
