//! A program, and all that it begins, that opens no TCP connection of its own: [`spawn`], by Landlock (Linux 6.7 and later, ABI 4).
//!
//! Landlock binds a thread and what it begins for good, and gives no way back: also what is static, runs without the library, or becomes another user. It takes `no_new_privs`
//! along, so that no program in it gains rights by its file (`setuid`).

use std::io;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;

/// Begins a program that may connect and listen by no TCP of its own. In a tokio runtime.
///
/// # Errors
/// If the kernel has no such rule, or the program cannot be run.
#[cfg(target_os = "linux")]
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    use landlock::{AccessNet, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _};
    let runtime = Handle::current();
    let confined = || {
        let _within = runtime.enter();
        let tcp = AccessNet::ConnectTcp | AccessNet::BindTcp;
        Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(tcp)
            .and_then(|rules| rules.create())
            .and_then(|rules| rules.restrict_self())
            .map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error))?;
        command.spawn()
    };
    // The thread ends with its bounds; only what it began keeps them.
    std::thread::scope(|scope| scope.spawn(confined).join())
        .unwrap_or_else(|_| Err(io::Error::other("the thread that begins it has ended")))
}

/// Elsewhere there is nothing of the kind.
#[cfg(not(target_os = "linux"))]
pub fn spawn(_command: &mut Command) -> io::Result<Child> {
    let _ = Handle::current();
    Err(io::ErrorKind::Unsupported.into())
}
