//! `hoop agent`: a proxy on loopback whose connections are flows.

pub mod at;
mod connect;
#[cfg(feature = "device")]
mod patient;
mod trust;

use self::at::{AtFlags, ask, no_agent, runs_socket};
use crate::base::exit::{Exit, Failure};
use crate::base::values::{Span, loopback};
use crate::flow::ways::ways;
use crate::server::{
    announce, announce_with_powers, logging, raise_descriptors, run_flows, run_flows_with_powers, stop_on_signal,
};
use clap::{Args, Subcommand};
use hoop_agent::{
    Agent, AgentConfig, AgentError, DEFAULT_ADDRESS, EntrustedHost, PatientReport, TunConfig, TunError, TunReport,
    title,
};
use hoop_relay::preload::{PreloadServer, STATUS};
use hoop_relay::status::Report;
use hoop_relay::{Introduction, LinkError, diagnostics};
use hoop_units::plain;
use serde::Deserialize;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct AgentFlags {
    #[command(subcommand)]
    command: Option<AgentCommand>,
    /// The file that `hoop introduce` made for this device
    #[arg(long, value_name = "FILE", env = "HOOP_RELAY", required = true)]
    relay: Option<PathBuf>,
    /// Listen on this loopback address, for HTTP and SOCKS5 alike
    #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_ADDRESS, value_parser = loopback)]
    listen: SocketAddr,
    /// Use this network interface. If you name several, each connection uses all of them at once
    #[arg(long, value_name = "NAME")]
    interface: Vec<String>,
    /// Give up a connection with an error once the relay has been out of reach for this long. Without this option, connections wait
    #[arg(long, value_name = "TIME")]
    give_up_after: Option<Span>,
    /// Tell a program that it is connected only when it is. Otherwise it is told at once if it asks for a name, which saves a round trip; an error is then a connection that breaks off
    #[arg(long)]
    wait: bool,
    /// Serve this user's programs, too, such as `_apt`, as which apt fetches; may be given several times. Programs of others than you and root are refused
    #[arg(long, value_name = "NAME", value_parser = user)]
    serve_user: Vec<u32>,
    /// Have the relay make this host's https requests, and those of all hosts below it, where a program asks for them; may be given several times. The relay then reads and could change them
    #[arg(long, value_name = "HOST[:PORT]")]
    entrust: Vec<EntrustedHost>,
    /// The file of `hoop agent trust`: browsers that trust its authority have requests to its hosts made by the relay
    #[arg(long, value_name = "FILE")]
    authority: Option<PathBuf>,
    /// Take in all TCP connections of the programs that are served, also of those that know no proxy. It takes root, or CAP_NET_ADMIN, and the programs `ip` and `nft`
    #[arg(long)]
    tun: bool,
    /// With --tun: take in what other machines send through this one by this interface; may be given several times
    #[arg(long, value_name = "NAME", requires = "tun")]
    tun_lan: Vec<String>,
    /// Print where the agent listens as JSON
    #[arg(long)]
    json: bool,
    /// Write logs as JSON
    #[arg(long)]
    log_json: bool,
    #[cfg(feature = "device")]
    #[command(flatten)]
    patient: patient::Flags,
    /// Trust the certificates in this PEM file, in addition to the system's
    #[cfg(not(feature = "device"))]
    #[arg(long, value_name = "FILE")]
    ca: Vec<PathBuf>,
}

#[derive(Subcommand)]
enum AgentCommand {
    /// Print what a shell needs so that its programs use the agent: `eval "$(hoop agent env)"`
    Env(AtFlags),
    /// Print what the agent carries
    Status(StatusFlags),
    /// Connect the standard input and output to a host through the agent, for ssh: `ssh -o ProxyCommand="hoop agent connect %h %p" HOST`
    Connect(connect::Flags),
    /// Make an authority for browsers, so that the relay can make their https requests to some hosts: downloads of those then outlive the relay
    Trust(trust::Flags),
}

#[derive(Args)]
struct StatusFlags {
    #[command(flatten)]
    at: AtFlags,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// A user's number.
fn user(name: &str) -> Result<u32, String> {
    let found = nix::unistd::User::from_name(name).map_err(|error| error.to_string())?;
    found.map(|user| user.uid.as_raw()).ok_or_else(|| "there is no such user".to_owned())
}

/// Runs an agent until it is told to stop, or asks one.
pub fn run(flags: AgentFlags) -> Result<Exit, Failure> {
    match flags.command {
        Some(AgentCommand::Env(at)) => {
            print!("{}", environment(at.agent));
            Ok(Exit::Done)
        }
        Some(AgentCommand::Status(flags)) => status(&flags),
        Some(AgentCommand::Connect(flags)) => connect::run(&flags),
        Some(AgentCommand::Trust(flags)) => trust::run(&flags),
        None => serve(flags),
    }
}

fn serve(flags: AgentFlags) -> Result<Exit, Failure> {
    logging::start(flags.log_json)?;
    raise_descriptors();
    let relay = flags.relay.ok_or_else(|| Failure::usage("--relay is missing"))?;
    let unusable = |error| {
        Failure::new(Exit::File, format!("{} is not a file that `hoop introduce` made", relay.display()), error)
    };
    let introduction = Introduction::read(&relay).map_err(unusable)?;
    let server = introduction.server.clone();
    let authority = flags.authority.as_deref().map(trust::read).transpose()?;
    let config = AgentConfig {
        listen: flags.listen,
        introduction,
        ways: ways(&flags.interface),
        give_up_after: flags.give_up_after.map(|span| span.0),
        waits: flags.wait,
        users: flags.serve_user,
        entrusted: flags.entrust,
        authority,
        #[cfg(feature = "device")]
        ca: flags.patient.ca().to_vec(),
        #[cfg(not(feature = "device"))]
        ca: flags.ca,
        #[cfg(feature = "device")]
        patient: flags.patient.config()?,
        #[cfg(not(feature = "device"))]
        patient: None,
        runs: runs_socket().filter(|path| is_free(path)),
        tun: flags.tun.then_some(TunConfig { lans: flags.tun_lan }),
    };
    let runs = config.runs.clone();
    let has_tun = config.tun.is_some();
    let work = async {
        let agent = Agent::bind(&config, |words| say(&words)).await.map_err(|error| match error {
            AgentError::Link(error @ LinkError::NoInterface(_)) => Failure::usage(error),
            AgentError::Tun(error @ TunError::NoLan(_)) => Failure::usage(error),
            AgentError::Tun(error) => {
                Failure::new(Exit::Unexpected, "cannot take in connections by a TUN interface", error)
            }
            AgentError::Link(LinkError::Introduction(error)) => unusable(error),
            AgentError::Patient(error) => Failure::new(Exit::File, "cannot take patient uploads", error),
            AgentError::Authority(error) => Failure::new(Exit::File, "cannot use --authority", error),
            error => Failure::new(Exit::Unexpected, "cannot start the agent", error),
        })?;
        tokio::spawn(diagnostics::tell(agent.link().troubles(), server, say));
        let mut stop = stop_on_signal()?;
        // Whoever reads this may send a signal at once.
        let announce = if has_tun { announce_with_powers } else { announce };
        announce(agent.address(), false, flags.json);
        agent.run(stop.requested()).await;
        runs.iter().for_each(|path| remove(path));
        Ok(Exit::Done)
    };
    if has_tun { run_flows_with_powers(work) } else { run_flows(work) }
}

/// Whether nobody serves `hoop run` there yet. What an agent left that was killed is removed.
fn is_free(path: &Path) -> bool {
    match UnixStream::connect(path) {
        Ok(_) => {
            say("another agent serves `hoop run` already, and this one does not");
            false
        }
        Err(_) => {
            remove(path);
            true
        }
    }
}

fn remove(path: &Path) {
    let status = hoop_files::beside(path, STATUS);
    for socket in PreloadServer::sockets(path).into_iter().chain([status]) {
        let _ = std::fs::remove_file(socket);
    }
}

fn say(words: &str) {
    tracing::warn!("{}", plain::line(words));
}

/// Programs read either case of these, but for `http_proxy`: in capitals it could be a field of a request to a CGI program.
fn environment(agent: SocketAddr) -> String {
    let direct = "localhost,127.0.0.1,::1";
    let (http, socks) = (format!("http://{agent}"), format!("socks5h://{agent}"));
    [
        ("http_proxy", &http[..]),
        ("https_proxy", &http),
        ("HTTPS_PROXY", &http),
        ("all_proxy", &socks),
        ("ALL_PROXY", &socks),
        ("no_proxy", direct),
        ("NO_PROXY", direct),
    ]
    .map(|(name, value)| format!("export {name}={value}\n"))
    .concat()
}

/// What `/status.json` says.
#[derive(Deserialize)]
struct Status {
    relay: String,
    tun: Option<TunReport>,
    #[serde(flatten)]
    report: Report,
    #[serde(default)]
    patient: Vec<PatientReport>,
}

fn status(flags: &StatusFlags) -> Result<Exit, Failure> {
    let agent = flags.at.agent;
    let json = ask(agent).map_err(|error| no_agent(agent, error))?;
    let status: Status = serde_json::from_slice(&json).map_err(|error| no_agent(agent, error.into()))?;
    if flags.json {
        println!("{}", String::from_utf8_lossy(&json).trim_end());
        return Ok(Exit::Done);
    }
    let patient: String = status.patient.iter().map(ToString::to_string).collect();
    print!("{}{}{patient}", title(agent, status.tun.as_ref(), &status.relay), status.report);
    Ok(Exit::Done)
}
