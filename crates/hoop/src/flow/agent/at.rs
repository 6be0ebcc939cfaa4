//! Where an agent listens, and what other processes ask it.

use crate::base::exit::{Exit, Failure};
use crate::base::values::loopback;
use clap::Args;
use hoop_agent::DEFAULT_ADDRESS;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

/// How long the agent may take to answer.
pub const ANSWER_MAX: Duration = Duration::from_secs(5);

/// More than a line for each connection that an agent has at once.
const STATUS_MAX: u64 = 4 << 20;

#[derive(Args)]
pub struct AtFlags {
    /// The agent's address
    #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_ADDRESS, env = "HOOP_AGENT", value_parser = loopback)]
    pub agent: SocketAddr,
}

pub fn no_agent(agent: SocketAddr, error: io::Error) -> Failure {
    Failure::new(Exit::Network, format!("no agent answers at {agent}"), error)
        .hint("start one with `hoop agent`, or name its address with --agent")
}

/// Asks an agent for its status.
pub fn ask(agent: SocketAddr) -> io::Result<Vec<u8>> {
    let mut asking = TcpStream::connect_timeout(&agent, ANSWER_MAX)?;
    asking.set_read_timeout(Some(ANSWER_MAX))?;
    // HTTP/1.0: the answer is as it is, and its end is that of the connection.
    asking.write_all(format!("GET /status.json HTTP/1.0\r\nHost: {agent}\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    asking.take(STATUS_MAX).read_to_end(&mut answer)?;
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
    match head.filter(|_| answer.starts_with(b"HTTP/1.0 200 ") || answer.starts_with(b"HTTP/1.1 200 ")) {
        Some(head) => Ok(answer.split_off(head)),
        None => Err(io::Error::other("what listens there is no agent")),
    }
}

/// Where programs that `hoop run` has begun reach the user's agent: in the session's own folder (XDG Base Directory Specification), which other users cannot enter. None: the session has none.
pub fn runs_socket() -> Option<PathBuf> {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty())?;
    Some(PathBuf::from(folder).join("hoop-agent"))
}
