//! Telling the service manager how a server is (`sd_notify(3)`): a datagram to the socket that `NOTIFY_SOCKET` names. Without one, nothing is told.
//!
//! [`ready`] starts the watchdog where the manager asks for one (`WATCHDOG_USEC`): a task on the runtime that serves says every half of that time that it still runs.
//! When the runtime has stopped running tasks, the manager restarts the process.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// It listens, and is ready. Within a tokio runtime.
pub fn ready() {
    tell("READY=1");
    if let Some(every) = watchdog_interval() {
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(every);
            loop {
                ticks.tick().await;
                tell("WATCHDOG=1");
            }
        });
    }
}

/// It reads its configuration again.
pub fn reloading() {
    tell("RELOADING=1");
}

/// It has read its configuration again.
pub fn reloaded() {
    tell("READY=1");
}

/// It was told to stop, and ends what is under way.
pub fn stopping() {
    tell("STOPPING=1");
}

fn tell(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, state) {
        tracing::warn!(%error, "cannot notify the service manager");
    }
}

/// A name with `@` before it is one in Linux's abstract space.
fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let datagram = UnixDatagram::unbound()?;
    #[cfg(target_os = "linux")]
    if let Some(name) = socket.as_bytes().strip_prefix(b"@") {
        use std::os::linux::net::SocketAddrExt as _;
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
        return datagram.send_to_addr(state.as_bytes(), &address).map(drop);
    }
    datagram.send_to(state.as_bytes(), socket).map(drop)
}

/// How often the watchdog is told: half of what it waits. None where it waits for another process.
fn watchdog_interval() -> Option<Duration> {
    let variable = |name| std::env::var(name).ok();
    interval(variable("WATCHDOG_USEC").as_deref(), variable("WATCHDOG_PID").as_deref(), std::process::id())
}

fn interval(usec: Option<&str>, pid: Option<&str>, own: u32) -> Option<Duration> {
    if pid.is_some_and(|pid| pid.parse() != Ok(own)) {
        return None;
    }
    let usec = usec?.parse::<u64>().ok().filter(|usec| *usec > 1)?;
    Some(Duration::from_micros(usec / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_told_twice_in_its_time_if_it_waits_for_this_process() {
        let half = Some(Duration::from_secs(15));
        assert_eq!(interval(Some("30000000"), None, 7), half);
        assert_eq!(interval(Some("30000000"), Some("7"), 7), half);
        for (usec, pid) in [(Some("30000000"), Some("8")), (None, None), (Some("0"), None), (Some("soon"), None)] {
            assert_eq!(interval(usec, pid, 7), None, "{usec:?} {pid:?}");
        }
    }

    #[test]
    fn a_state_reaches_a_socket_by_path_and_by_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let mut told = [0; 64];
        send(path.as_os_str(), "READY=1").unwrap();
        let len = manager.recv(&mut told).unwrap();
        assert_eq!(&told[..len], b"READY=1");
        #[cfg(target_os = "linux")]
        {
            use std::os::linux::net::SocketAddrExt as _;
            let name = format!("hoop-notify-{}", std::process::id());
            let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
            let manager = UnixDatagram::bind_addr(&address).unwrap();
            send(OsStr::new(&format!("@{name}")), "STOPPING=1").unwrap();
            let len = manager.recv(&mut told).unwrap();
            assert_eq!(&told[..len], b"STOPPING=1");
        }
        assert!(send(folder.path().join("none").as_os_str(), "READY=1").is_err());
    }
}
