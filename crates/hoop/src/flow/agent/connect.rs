//! `hoop agent connect`: a program's standard input and output as a connection through the agent. What passes is bytes, not words.

use super::at::{ANSWER_MAX, AtFlags, no_agent};
use crate::base::exit::{Exit, Failure};
use clap::Args;
use hoop_units::plain;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;

#[derive(Args)]
pub struct Flags {
    #[command(flatten)]
    at: AtFlags,
    /// The host's name or address
    #[arg(value_name = "HOST")]
    host: String,
    /// Its port
    #[arg(value_name = "PORT")]
    port: u16,
}

/// The longest head of an answer to CONNECT: an agent's has some 200 bytes.
const HEAD_MAX: usize = 4 << 10;

/// As much as a pipe takes.
const BUFFER: usize = 64 << 10;

/// Passes the standard input and output on, to the end of what comes back.
pub fn run(flags: &Flags) -> Result<Exit, Failure> {
    let (agent, host) = (flags.at.agent, &flags.host);
    let bracketed = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.clone() };
    let to = format!("{bracketed}:{}", flags.port);
    if !to.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Failure::usage(format!("{} is no host", plain::line(host))));
    }
    let open = || -> io::Result<(TcpStream, String)> {
        let mut connection = TcpStream::connect_timeout(&agent, ANSWER_MAX)?;
        connection.write_all(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes())?;
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_MAX {
            connection.read_exact(&mut byte).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => io::Error::other("what listens there is no agent"),
                _ => error,
            })?;
            head.push(byte[0]);
        }
        Ok((connection, String::from_utf8_lossy(&head).into_owned()))
    };
    let (connection, head) = open().map_err(|error| no_agent(agent, error))?;
    if head.split(' ').nth(1) != Some("200") {
        // Its body says why in a line.
        let mut why = String::new();
        let _ = connection.set_read_timeout(Some(ANSWER_MAX));
        let _ = BufReader::new(connection.take(HEAD_MAX as u64)).read_line(&mut why);
        let Some(why) = why.trim_end().strip_prefix("hoop agent: ") else {
            return Err(no_agent(agent, io::Error::other("what listens there is no agent")));
        };
        let why = why.trim_start_matches(&format!("{to}: "));
        return Err(Failure::new(Exit::Network, format!("no connection to {to}"), plain::line(why)));
    }
    let mut writes = connection.try_clone().map_err(|error| no_agent(agent, error))?;
    std::thread::spawn(move || {
        let _ = pass(io::stdin().lock(), &mut writes);
        let _ = writes.shutdown(std::net::Shutdown::Write);
    });
    // Past the buffer, which waits for the end of a line.
    let out = io::stdout().as_fd().try_clone_to_owned();
    let copied = out.and_then(|out| pass(connection, &mut File::from(out)));
    copied.map_err(|error| {
        Failure::new(Exit::Network, format!("the connection to {to} broke off"), error)
            .hint("the agent's log says why; `hoop agent --wait` tells it here, if there is no connection")
    })?;
    Ok(Exit::Done)
}

/// Passes on what comes, as it comes. [`io::copy`] would splice, which locks a pipe until more has come, so that nobody can read what has.
fn pass(mut from: impl io::Read, to: &mut impl io::Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(len) => to.write_all(&buffer[..len])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
