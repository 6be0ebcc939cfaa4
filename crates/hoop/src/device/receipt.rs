//! `hoop receipt verify`: whether a kept receipt is genuine, and for these files.

use super::flags::{ReceiptCommand, VerifyFlags};
use super::request;
use super::show;
use crate::exit::{Exit, Failure};
use hoop_client::{BodyPiece, Client, KeptReceipt, ReceiptError, check_body};
use hoop_http::{Clock, Origin};
use hoop_seal::signing::Receipt;
use hoop_units::UploadId;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

/// Runs it.
pub fn run(command: ReceiptCommand, clock: Clock) -> Result<Exit, Failure> {
    match command {
        ReceiptCommand::Verify(flags) => verify(&flags, clock),
    }
}

fn verify(flags: &VerifyFlags, clock: Clock) -> Result<Exit, Failure> {
    let text = std::fs::read_to_string(&flags.receipt)
        .map_err(|error| Failure::new(Exit::File, format!("{} cannot be read", flags.receipt.display()), error))?;
    let kept = KeptReceipt::parse(&text).map_err(wrong)?;
    let signer = kept.signer().map_err(wrong)?;
    let keys = match (&flags.key, flags.offline) {
        (Some(key), _) => BTreeMap::from([(signer.to_string(), key.clone())]),
        (None, true) => kept.signing_keys.clone(),
        (None, false) => published(flags, &kept, clock)?,
    };
    let receipt = kept.check(&keys).map_err(|error| {
        wrong(error).hint("--key with the service's public key of that id, if it has rotated its keys since")
    })?;
    match (&flags.body, &flags.files[..]) {
        (Some(body), _) => check_body(&receipt, body.clone()),
        (None, []) => Ok(()),
        (None, files) => kept.check_files(&receipt, files),
    }
    .map_err(wrong)?;
    let checked = flags.body.is_some() || !flags.files.is_empty();
    match flags.json {
        true => println!("{}", document(&kept, &receipt, checked)),
        false => print!("{}", in_words(&kept, &receipt, checked, flags.offline)),
    }
    Ok(Exit::Done)
}

/// The keys that the service publishes now.
fn published(flags: &VerifyFlags, kept: &KeptReceipt, clock: Clock) -> Result<BTreeMap<String, String>, Failure> {
    let origin: Origin = kept.origin.parse().map_err(|error| {
        Failure::new(Exit::Refused, format!("the receipt's service `{}` is no origin", kept.origin), error)
    })?;
    let client = request::client(request::client_config(&flags.network, clock))?;
    let runtime = super::light_runtime()?;
    let keys = runtime.block_on(client.signing_keys(&origin));
    runtime.shutdown_background();
    keys.map_err(|error| {
        Failure::new(Exit::Network, format!("{origin} cannot be asked for its keys"), error)
            .hint("--offline, which believes the keys that were kept with the receipt")
    })
}

fn wrong(error: ReceiptError) -> Failure {
    match error {
        ReceiptError::Source(error) => Failure::new(Exit::File, "a file cannot be read", error),
        error @ ReceiptError::Files { .. } => Failure::new(Exit::Usage, "the receipt cannot be checked", error),
        error => Failure::new(Exit::Refused, "the receipt proves nothing", error),
    }
}

fn in_words(kept: &KeptReceipt, receipt: &Receipt, checked: bool, offline: bool) -> String {
    let (state, time) = (receipt.outcome.name(), show::time(receipt.time.as_secs()));
    let origin = show::beginning(kept.origin.as_bytes(), 200);
    let mut text = format!("{}: {state} by {origin} at {time}\n", receipt.upload_id);
    text += &format!("  body, SHA-256  {}\n", hex::encode(receipt.digest));
    let names = kept.body.iter().filter_map(|piece| match piece {
        BodyPiece::File { name, size } => {
            Some(format!("{} ({})", show::beginning(name.as_bytes(), 60), show::bytes(*size)))
        }
        BodyPiece::Octets(_) => None,
    });
    names.for_each(|name| text += &format!("  file           {name}\n"));
    text += match (checked, offline) {
        (true, false) => "The receipt is genuine, and for what was given.\n",
        (false, false) => "The receipt is genuine.\n",
        (true, true) => "The receipt is for what was given, and genuine if the keys kept with it are.\n",
        (false, true) => "The receipt is genuine if the keys kept with it are.\n",
    };
    text
}

fn document(kept: &KeptReceipt, receipt: &Receipt, checked: bool) -> serde_json::Value {
    json!({
        "id": receipt.upload_id.to_hex(), "origin": kept.origin, "state": receipt.outcome.name(),
        "time": receipt.time.as_secs(), "total": receipt.total, "digest": hex::encode(receipt.digest), "body_checked": checked,
    })
}

/// Fetches the receipt of an upload and writes it where it is to be kept; false: there is none.
pub async fn keep(client: &Client, id: UploadId, body: Vec<BodyPiece>, path: &Path) -> Result<bool, Failure> {
    let Some(kept) = client.receipt(id, body).await? else { return Ok(false) };
    std::fs::write(path, kept.to_json())
        .map_err(|error| Failure::new(Exit::File, format!("{} cannot be written", path.display()), error))?;
    Ok(true)
}
