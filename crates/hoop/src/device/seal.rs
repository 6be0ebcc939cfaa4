//! `hoop seal`: Z into a file or a pipe, for whoever carries it.

use super::flags::SealFlags;
use super::request;
use crate::base::exit::{Exit, Failure};
use hoop_client::{GATEWAY_NAME, GATEWAY_PORT};
use hoop_http::Clock;
use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::path::Path;
use url::form_urlencoded::byte_serialize;

/// Runs it.
pub fn run(flags: SealFlags, clock: Clock) -> Result<Exit, Failure> {
    let upload = request::upload(&flags.request)?;
    let client = request::client(request::client_config(&flags.request.network, clock))?;
    let mut output = open(flags.output.as_deref())?;
    let mut written = Ok(());
    let runtime = super::runtime::light_runtime()?;
    let sealed = runtime.block_on(client.seal(&upload, flags.request.suite, |frame| {
        written = output.write_all(frame);
        written.is_ok()
    }));
    runtime.shutdown_background();
    let fail = |error| Failure::new(Exit::File, "cannot write the sealed upload", error);
    written.and_then(|()| output.flush()).map_err(fail)?;
    let record = sealed?;
    let dest: String = byte_serialize(record.dest.as_bytes()).collect();
    // Where a redirected standard output leads is not for us to know.
    let file = flags.output.as_ref().map_or_else(|| "FILE".to_owned(), |file| file.display().to_string());
    eprintln!(
        "hoop: sealed {} as upload {}, {} bytes. To hand it to any gateway that requires no permit:",
        hoop_units::plain::line(&record.name),
        record.id,
        record.total
    );
    eprintln!("  curl --data-binary '@{file}' 'http://{GATEWAY_NAME}:{GATEWAY_PORT}/offload?dest={dest}'");
    Ok(Exit::Done)
}

fn open(path: Option<&Path>) -> Result<Box<dyn Write>, Failure> {
    match path {
        Some(path) => match File::create(path) {
            Ok(file) => Ok(Box::new(file)),
            Err(error) => Err(Failure::new(Exit::File, format!("cannot write {}", path.display()), error)),
        },
        None if io::stdout().is_terminal() => {
            Err(Failure::usage("sealed bytes cannot go to a terminal").hint("use -o FILE, or a pipe"))
        }
        None => Ok(Box::new(io::stdout().lock())),
    }
}
