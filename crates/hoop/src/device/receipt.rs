//! `hoop receipt verify`: whether a kept receipt is genuine, and for these files.

use super::flags::{ReceiptCommand, VerifyFlags};
use super::request;
use super::show;
use crate::base::exit::{Exit, Failure};
use hoop_client::{Asked, BodyPiece, Client, KeptReceipt, ReceiptError, check_body};
use hoop_http::{Clock, Origin, Rng};
use hoop_seal::signing::Receipt;
use hoop_units::{UploadId, plain};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Runs it.
pub fn run(command: ReceiptCommand, clock: Clock) -> Result<Exit, Failure> {
    match command {
        ReceiptCommand::Verify(flags) => verify(&flags, clock),
    }
}

fn verify(flags: &VerifyFlags, clock: Clock) -> Result<Exit, Failure> {
    let text = std::fs::read_to_string(&flags.receipt)
        .map_err(|error| Failure::new(Exit::File, format!("cannot read {}", flags.receipt.display()), error))?;
    let kept = KeptReceipt::parse(&text).map_err(wrong)?;
    let signer = kept.signer().map_err(wrong)?;
    let doubt = doubt(flags, &kept);
    let keys = match (&flags.key, &flags.keys) {
        (Some(key), _) => BTreeMap::from([(signer.to_string(), key.clone())]),
        (None, Some(file)) => pinned(file)?,
        (None, None) if flags.offline => kept.signing_keys.clone(),
        (None, None) => published(flags, &kept, clock)?,
    };
    let receipt = kept.check(&keys).map_err(|error| {
        wrong(error).hint("if the service has rotated its keys since, give its public key of that id with --key")
    })?;
    let asked = kept.check_request(&receipt).map_err(wrong)?;
    match (&flags.body, &flags.files[..]) {
        (Some(body), _) => check_body(&receipt, body.clone()),
        (None, []) => Ok(()),
        (None, files) => kept.check_files(&receipt, files),
    }
    .map_err(wrong)?;
    let checked = flags.body.is_some() || !flags.files.is_empty();
    match flags.json {
        true => println!("{}", document(&kept, &receipt, asked, checked, doubt.is_none())),
        false => print!("{}", in_words(&kept, &receipt, asked, checked, doubt)),
    }
    Ok(if doubt.is_none() { Exit::Done } else { Exit::Unproven })
}

/// Why the keys may be made up; none: they may not.
fn doubt(flags: &VerifyFlags, kept: &KeptReceipt) -> Option<&'static str> {
    if flags.key.is_some() || flags.keys.is_some() {
        return None;
    }
    if flags.offline {
        return Some("the receipt and the keys come from the same file, which anyone can make up");
    }
    let is_vouched_for = kept.origin.parse().is_ok_and(|origin: Origin| origin.is_https() || origin.is_loopback());
    (!is_vouched_for).then_some("the keys came over plain http, and anyone on the way can make them up")
}

/// The keys that somebody wrote down: the document of `/.well-known/hoop`, or its `signing_keys` alone.
fn pinned(file: &Path) -> Result<BTreeMap<String, String>, Failure> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Pinned {
        Document { signing_keys: BTreeMap<String, String> },
        Keys(BTreeMap<String, String>),
    }
    let failed =
        |exit, error: &dyn std::fmt::Display| Failure::new(exit, format!("{} has no keys", file.display()), error);
    let text = std::fs::read_to_string(file).map_err(|error| failed(Exit::File, &error))?;
    match serde_json::from_str(&text).map_err(|error| failed(Exit::Usage, &error))? {
        Pinned::Document { signing_keys: keys } | Pinned::Keys(keys) => Ok(keys),
    }
}

/// The keys that the service publishes now.
fn published(flags: &VerifyFlags, kept: &KeptReceipt, clock: Clock) -> Result<BTreeMap<String, String>, Failure> {
    let origin: Origin = kept.origin.parse().map_err(|error| {
        Failure::new(Exit::Refused, format!("the receipt's service `{}` is not an origin", kept.origin), error)
    })?;
    let client = request::client(request::client_config(&flags.network, clock))?;
    let runtime = super::runtime::light_runtime()?;
    let keys = runtime.block_on(client.signing_keys(&origin));
    runtime.shutdown_background();
    keys.map_err(|error| {
        Failure::new(Exit::Network, format!("cannot ask {origin} for its keys"), error)
            .hint("give a copy of its /.well-known/hoop with --keys, or its public key with --key")
    })
}

fn wrong(error: ReceiptError) -> Failure {
    match error {
        ReceiptError::Source(error) => Failure::new(Exit::File, "cannot read a file", error),
        error @ ReceiptError::Files { .. } => Failure::new(Exit::Usage, "cannot check the receipt", error),
        error => Failure::new(Exit::Refused, "the receipt proves nothing", error),
    }
}

fn in_words(kept: &KeptReceipt, receipt: &Receipt, asked: Asked<'_>, checked: bool, doubt: Option<&str>) -> String {
    let (state, time) = (receipt.outcome.name(), show::time(receipt.time.as_secs()));
    let origin = plain::line(&kept.origin);
    let mut text = format!("{}: {state} by {origin} at {time}\n", receipt.upload_id);
    text += &match asked {
        Asked::Told(request) => {
            format!("  request        {} {}\n", plain::line(&request.method), plain::line(&request.path))
        }
        Asked::Untold => "  request        not named in this file\n".to_owned(),
        Asked::Any => "  request        unknown: a receipt of version 1 does not name it\n".to_owned(),
    };
    text += &format!("  body, SHA-256  {}\n", hex::encode(receipt.digest));
    let names = kept.body.iter().filter_map(|piece| match piece {
        BodyPiece::File { name, size } => Some(format!("{} ({})", plain::line(name), show::bytes(*size))),
        BodyPiece::Octets(_) => None,
    });
    names.for_each(|name| text += &format!("  file           {name}\n"));
    text += match (checked, doubt.is_none()) {
        (true, true) => "The receipt is genuine and matches what you gave.\n",
        (false, true) => "The receipt is genuine.\n",
        (true, false) => "The receipt matches what you gave. ",
        (false, false) => "",
    };
    doubt.iter().for_each(|why| text += &format!("This proves nothing: {why}.\n"));
    text
}

fn document(
    kept: &KeptReceipt,
    receipt: &Receipt,
    asked: Asked<'_>,
    checked: bool,
    is_proven: bool,
) -> serde_json::Value {
    let request = match asked {
        Asked::Told(request) => json!({"method": request.method, "path": request.path}),
        Asked::Untold | Asked::Any => json!(null),
    };
    json!({
        "id": receipt.upload_id.to_hex(), "origin": kept.origin, "state": receipt.outcome.name(),
        "time": receipt.time.as_secs(), "total": receipt.total, "digest": hex::encode(receipt.digest), "body_checked": checked,
        "request": request, "request_bound": receipt.request.is_some(), "proven": is_proven,
    })
}

/// Fetches the receipt of an upload and writes it where it is to be kept; false: there is none.
pub async fn keep(client: &Client, id: UploadId, body: Vec<BodyPiece>, path: &Path) -> Result<bool, Failure> {
    let Some(kept) = client.receipt(id, body).await? else { return Ok(false) };
    write(path, kept.to_json().as_bytes())
        .map_err(|error| Failure::new(Exit::File, format!("cannot write {}", path.display()), error))?;
    Ok(true)
}

/// Writes a receipt, for its owner alone, whole or not at all: one that was there before may be the only one. What is no plain file, such as a pipe, is
/// written as it is.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(there) if !there.is_file() => std::fs::write(path, bytes),
        _ => {
            let random = format!(".{}", hex::encode(Rng.bytes::<8>()));
            hoop_files::replace_by(&hoop_files::beside(path, &random), path, bytes, |_| Ok(()))
        }
    }
}
