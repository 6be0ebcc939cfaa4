//! `hoop tickets`: fetches tickets ahead.

use super::flags::TicketsFlags;
use super::request;
use crate::base::exit::{Exit, Failure};
use hoop_http::Clock;
use serde_json::json;

/// Runs it.
pub fn run(mut flags: TicketsFlags, clock: Clock) -> Result<Exit, Failure> {
    let nothing = flags.request.form.is_empty() && flags.request.data.is_empty();
    if nothing && flags.request.upload_file.is_none() {
        // What will be sent is not known yet; the method is POST unless -X says otherwise.
        flags.request.data.push(String::new());
    }
    let upload = request::upload(&flags.request)?;
    let client = request::client(request::client_config(&flags.request.network, clock))?;
    let runtime = super::runtime::light_runtime()?;
    let fetched = runtime.block_on(client.fetch_tickets(&upload, flags.request.suite, flags.count, &|why| {
        eprintln!("hoop: {why}");
    }));
    runtime.shutdown_background();
    let ready = fetched?;
    let place = format!("{} {}{}", upload.method, upload.url.origin().ascii_serialization(), upload.url.path());
    match flags.json {
        true => println!("{}", json!({"fetched": flags.count, "ready": ready})),
        false => println!("{} tickets fetched; {ready} are ready for {place}", flags.count),
    }
    Ok(Exit::Done)
}
