//! `hoop get`: downloads through the agent that are continued until they are whole.

mod digest;
mod download;
mod fields;
mod part;
mod source;
mod target;

use self::digest::Expected;
use self::download::{Job, Show, download};
use self::fields::Fields;
use self::source::Source;
use super::agent::at::{AtFlags, no_agent};
use crate::base::exit::{Exit, Failure};
use crate::base::values::{Span, bytes};
use clap::Args;
use hoop_agent::Owners;
use hoop_http::tls::client_config;
use hoop_units::plain;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use rustix::fs::Mode;
use rustix::process::umask;
use std::collections::HashSet;
use std::io::{IsTerminal as _, Read as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use url::Url;

#[derive(Args)]
pub struct GetFlags {
    /// What to download
    #[arg(value_name = "URL", required_unless_present = "input_file")]
    urls: Vec<String>,
    /// Download the URLs in this file, too, one in each line; `-` is the standard input
    #[arg(short, long, value_name = "FILE")]
    input_file: Option<PathBuf>,
    /// Save it as this file, and replace what is there; only with one URL [default: the last part of the URL's path]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Save files in this folder
    #[arg(short, long, value_name = "FOLDER", default_value = ".", conflicts_with = "output")]
    dir: PathBuf,
    /// Continue a file that is there and that another program began. What `hoop get` began is always continued
    #[arg(short, long = "continue")]
    continues: bool,
    /// The file's SHA-256; only with one URL
    #[arg(long, value_name = "HEX", value_parser = Expected::sha256)]
    sha256: Option<Expected>,
    /// Give up after this time, such as 2h; the same command continues later
    #[arg(long, value_name = "TIME")]
    deadline: Option<Span>,
    /// Give up once nothing has come for this long
    #[arg(long, value_name = "TIME", default_value = "24h")]
    give_up_after: Span,
    /// Download this many files at once
    #[arg(short, long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// Send this field, too, such as 'Accept-Language: de', or all of a file that has one in each line (@FILE), to the server of the URLs alone; may be given several times. Secrets
    /// such as Cookie belong in a file
    #[arg(short = 'H', long = "header", value_name = "FIELD")]
    headers: Vec<String>,
    /// Trust the certificate in this PEM file, too, for https; may be given several times
    #[arg(long, value_name = "FILE")]
    ca: Vec<PathBuf>,
    #[command(flatten)]
    at: AtFlags,
    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

/// The longest list of URLs, in bytes.
const LIST_MAX: u64 = 16 << 20;

/// The mode of a new file, less what the umask says.
const NEW_MODE: u32 = 0o666;

/// Downloads all, and ends with the code of the last that failed.
pub fn run(flags: GetFlags) -> Result<Exit, Failure> {
    // What is not whole is for this user alone.
    let mode = NEW_MODE & !umask(Mode::from_raw_mode(0o077)).as_raw_mode();
    let jobs = jobs(&flags, mode)?;
    let tls = client_config(&flags.ca).map_err(|error| Failure::new(Exit::File, "cannot use --ca", error))?;
    let agent = flags.at.agent;
    // One that is restarted later is waited for.
    TcpStream::connect(agent).map_err(|error| no_agent(agent, error))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Unexpected, "cannot start", error))?;
    let deadline = flags.deadline.and_then(|deadline| SystemTime::now().checked_add(deadline.0));
    let deadline = deadline.and_then(|deadline| deadline.duration_since(SystemTime::UNIX_EPOCH).ok());
    let deadline = deadline.map(|deadline| deadline.as_secs().into());
    let source = Arc::new(Source { agent, tls, deadline, owners: Owners::default() });
    let ended = runtime.block_on(async {
        let all = download_all(jobs, source, &flags);
        match flags.deadline {
            None => all.await,
            Some(deadline) => timeout(deadline.0, all).await.unwrap_or_else(|_| {
                let failure = Failure::plain(Exit::TimedOut, "the deadline is over, and not all has come");
                Err(failure.hint("run the same command again to continue"))
            }),
        }
    });
    runtime.shutdown_background();
    ended.map(|()| Exit::Done)
}

/// What is to be downloaded, and where to.
fn jobs(flags: &GetFlags, mode: u32) -> Result<Vec<Job>, Failure> {
    let mut urls = flags.urls.clone();
    if let Some(path) = &flags.input_file {
        let listed =
            list(path).map_err(|error| Failure::new(Exit::File, format!("cannot read {}", path.display()), error))?;
        urls.extend(
            listed.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned),
        );
    }
    if urls.len() != 1 && (flags.output.is_some() || flags.sha256.is_some()) {
        return Err(Failure::usage(format!("--output and --sha256 are for one URL, and there are {}", urls.len())));
    }
    if flags.output.as_deref() == Some(Path::new("-")) {
        return Err(Failure::usage(
            "--output needs a file: what is written to the standard output cannot be continued",
        ));
    }
    let fields = Fields::of(&flags.headers)?;
    let urls = urls.iter().map(|text| parse(text)).collect::<Result<Vec<_>, _>>()?;
    if !flags.headers.is_empty() && urls.iter().any(|url| url.origin() != urls[0].origin()) {
        return Err(Failure::usage("--header is for one server, and the URLs are of several"));
    }
    let (mut targets, is_one) = (HashSet::new(), urls.len() == 1);
    urls.into_iter()
        .map(|url| {
            let target = flags.output.clone().unwrap_or_else(|| flags.dir.join(target::name(&url)));
            if !targets.insert(target.clone()) {
                return Err(Failure::usage(format!("two URLs would be saved as {}", target.display())));
            }
            if flags.output.is_none() && !flags.continues && target.exists() {
                let there = format!("{} is there already", target.display());
                if !is_one {
                    // It is one of those that were downloaded before the list was interrupted.
                    if !flags.quiet {
                        eprintln!("{there}");
                    }
                    return Ok(None);
                }
                let failure = Failure::plain(Exit::File, there);
                return Err(failure.hint("use -o to replace it, or -c to continue it"));
            }
            let (expected, continues, replaces) = (flags.sha256.clone(), flags.continues, flags.output.is_some());
            Ok(Some(Job { url, target, fields: fields.clone(), expected, continues, replaces, mode }))
        })
        .filter_map(Result::transpose)
        .collect()
}

fn parse(text: &str) -> Result<Url, Failure> {
    let shown = plain::line(text);
    let mut url = Url::parse(text).map_err(|error| {
        let failure = Failure::usage(format!("{shown} is not a URL"));
        if error == url::ParseError::RelativeUrlWithoutBase { failure.hint(format!("http://{shown}")) } else { failure }
    })?;
    if !["http", "https"].contains(&url.scheme()) || url.host().is_none() {
        return Err(Failure::usage(format!("{shown}: only http:// and https:// are supported")));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Failure::usage(
            "a password in a URL is refused: other users could see it in the list of processes",
        ));
    }
    url.set_fragment(None);
    Ok(url)
}

fn list(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    match path == Path::new("-") {
        true => std::io::stdin().lock().take(LIST_MAX).read_to_string(&mut text)?,
        false => std::fs::File::open(path)?.take(LIST_MAX).read_to_string(&mut text)?,
    };
    Ok(text)
}

async fn download_all(jobs: Vec<Job>, source: Arc<Source>, flags: &GetFlags) -> Result<(), Failure> {
    let places = Arc::new(Semaphore::new(flags.jobs.into()));
    let (bars, patience, mut running) = (MultiProgress::new(), flags.give_up_after.0, JoinSet::new());
    for job in jobs {
        let (places, source, show) = (places.clone(), source.clone(), Shown::new(&bars, &job, flags.quiet));
        running.spawn(async move {
            let _place = places.acquire_owned().await;
            let ended = run_job(&job, &source, patience, &show).await;
            if let Some(bar) = &show.bar {
                bar.finish_and_clear();
            }
            ended
        });
    }
    let mut failed = None;
    while let Some(ended) = running.join_next().await {
        let ended = ended.unwrap_or_else(|error| Err(Failure::new(Exit::Unexpected, "a download ended", error)));
        if let Err(failure) = ended {
            // The last is told by whoever has called.
            if let Some(earlier) = failed.replace(failure) {
                eprint!("{earlier}");
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

async fn run_job(job: &Job, source: &Source, patience: Duration, show: &Shown) -> Result<(), Failure> {
    let length = download(job, source, patience, show).await?;
    show.say(&format!("saved {}, {}", plain::line(&job.target.to_string_lossy()), bytes(length)));
    Ok(())
}

/// A bar on a terminal, and lines on the standard error stream.
struct Shown {
    bar: Option<ProgressBar>,
    /// How much was there before: it says nothing of the rate.
    before: AtomicU64,
    quiet: bool,
}

/// So many letters of a file's name are shown before its bar.
const NAME_SHOWN: usize = 24;

impl Shown {
    fn new(bars: &MultiProgress, job: &Job, quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let name = plain::line(&job.target.file_name().unwrap_or_default().to_string_lossy());
            let name: String = name.chars().take(NAME_SHOWN).collect();
            let bar = bars.add(ProgressBar::no_length().with_prefix(name));
            bar.set_style(style("{prefix} waiting"));
            bar
        });
        Self { bar, before: AtomicU64::new(u64::MAX), quiet }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Show for Shown {
    fn progress(&self, have: u64, length: Option<u64>) {
        let Some(bar) = &self.bar else { return };
        let of = length.map(|length| format!(" of {}", bytes(length))).unwrap_or_default();
        bar.set_message(format!("{}{of}", bytes(have)));
        let mut before = self.before.load(Ordering::Relaxed);
        let missing = length.map(|length| length.saturating_sub(before));
        if have < before || bar.length() != missing {
            before = have;
            self.before.store(before, Ordering::Relaxed);
            bar.reset();
            let told = if length.is_some() { ", {decimal_bytes_per_sec}, {eta} left" } else { "" };
            bar.set_style(style(&format!("{{prefix}} {{msg}}{told}")));
            match length {
                Some(length) => bar.set_length(length.saturating_sub(before)),
                None => bar.unset_length(),
            }
        }
        bar.set_position(have - before);
    }

    fn say(&self, words: &str) {
        match &self.bar {
            _ if self.quiet => {}
            Some(bar) => bar.println(words),
            None => eprintln!("{words}"),
        }
    }
}
