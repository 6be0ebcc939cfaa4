//! `hoop spool`: a gateway's folder in an operator's hands. `list` and `export` only look, also while a gateway runs; `check` compares
//! everything with everything, and mends what can be if asked to.

use crate::base::exit::{Exit, Failure};
use crate::base::terminal;
use clap::{Args, Subcommand};
use hoop_gateway::FIRST_RECORD;
use hoop_http::{Clock, Origin};
use hoop_spool::{Finding, OpenError, Payload, ReadError, StoreError, Upload, View};
use hoop_units::{AddressKey, ByteRange, RangeSet, UnixTime, UploadId, plain};
use serde_json::json;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use url::Url;

/// An upload is written out in pieces of this length: four records.
const PIECE_BYTES: u64 = 256 * 1024;

#[derive(Args)]
pub struct SpoolFlags {
    /// The gateway's spool folder (required)
    #[arg(long, value_name = "FOLDER", global = true)]
    spool: Option<PathBuf>,
    #[command(subcommand)]
    command: SpoolCommand,
}

#[derive(Subcommand)]
enum SpoolCommand {
    /// List the uploads in the folder
    List {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Compare the index, the files and their checksums; exit with 1 if something is wrong
    Check {
        /// Repair what can be repaired. Spoilt data then counts as missing, and the device may bring it again
        #[arg(long)]
        repair: bool,
    },
    /// Write an upload's sealed body to a file, so that you can carry it elsewhere
    Export {
        /// The upload's id
        id: String,
        /// The file to write; an existing file is never overwritten
        file: PathBuf,
        /// Write the file even if parts of the upload are missing; the file has holes there
        #[arg(long)]
        partial: bool,
    },
}

/// Runs it.
pub fn run(flags: SpoolFlags) -> Result<Exit, Failure> {
    let folder =
        flags.spool.ok_or_else(|| Failure::usage("--spool is missing").hint("name the folder: --spool FOLDER"))?;
    let now = Clock::system().unix();
    match flags.command {
        SpoolCommand::List { json } => list(&view(&folder)?, json, now),
        SpoolCommand::Check { repair } => check(&folder, repair, now),
        SpoolCommand::Export { id, file, partial } => {
            let id =
                id.parse().map_err(|error| Failure::new(Exit::Usage, format!("`{id}` is not an upload id"), error))?;
            export(&view(&folder)?, id, &file, partial)
        }
    }
}

fn view(folder: &Path) -> Result<View, Failure> {
    let view = View::open(folder, FIRST_RECORD).map_err(|error| not_opened(&error))?;
    if view.is_in_use() {
        eprintln!("hoop: a gateway uses {}; this shows how it was a moment ago", folder.display());
    }
    Ok(view)
}

fn not_opened(error: &OpenError) -> Failure {
    let failure = Failure::new(Exit::File, "cannot open the spool", error);
    match error {
        OpenError::Locked(_) => failure.hint("stop the gateway first; `hoop spool list` works while it runs"),
        _ => failure,
    }
}

fn failed(error: &StoreError) -> Failure {
    Failure::new(Exit::File, "cannot read the spool", error).hint("`hoop spool check` looks for damage")
}

fn list(view: &View, as_json: bool, now: UnixTime) -> Result<Exit, Failure> {
    let mut seq = 0;
    while let Some((next, upload)) = view.after(seq).map_err(|error| failed(&error))? {
        seq = next;
        let line = if as_json { object(&upload, now) } else { plain::line(&words(&upload, now)) };
        // Whoever reads no further has seen enough.
        if terminal::out(format_args!("{line}\n")).is_err() {
            break;
        }
    }
    Ok(Exit::Done)
}

fn origin(upload: &Upload) -> String {
    let origin = Url::parse(&upload.dest).ok().and_then(|url| Origin::of(&url).ok());
    origin.map_or_else(|| upload.dest.clone(), |origin| origin.to_string())
}

fn object(upload: &Upload, now: UnixTime) -> String {
    let device = (upload.device != AddressKey::UNKNOWN).then(|| upload.device.to_string());
    json!({
        "id": upload.id.to_hex(),
        "state": upload.state.name(),
        "device": device,
        "dest_origin": origin(upload),
        "total": upload.total,
        "stored": upload.stored.len(),
        "delivered": upload.delivered.len(),
        "age_secs": now.since(upload.created),
        "expires": upload.expires.0,
        "deadline": upload.deadline.map(|at| at.0),
        "reason": upload.reason.as_ref().map(|reason| reason.code.as_str()),
    })
    .to_string()
}

fn words(upload: &Upload, now: UnixTime) -> String {
    let reason = upload.reason.as_ref().map_or_else(String::new, |reason| format!("  {}", reason.code));
    format!(
        "{}  {:<10}  {:<15}  {}  {} of {} bytes  {} old{reason}",
        upload.id,
        upload.state.name(),
        upload.device.to_string(),
        origin(upload),
        upload.stored.len(),
        upload.total,
        age(now.since(upload.created)),
    )
}

/// In the largest unit that it has one of.
fn age(secs: u32) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "min")];
    let unit = units.into_iter().find(|(unit, _)| secs >= *unit);
    unit.map_or_else(|| format!("{secs} s"), |(unit, name)| format!("{} {name}", secs / unit))
}

fn check(folder: &Path, repair: bool, now: UnixTime) -> Result<Exit, Failure> {
    let mut print = |finding: &Finding| {
        let id = finding.id.map_or_else(String::new, |id| format!(" {id}"));
        let repaired = if finding.repaired { " (repaired)" } else { "" };
        println!("{}{id}: {}{repaired}", finding.what.name(), plain::line(&finding.detail));
    };
    let repair = repair.then_some(now);
    let checked = hoop_spool::check(folder, FIRST_RECORD, repair, &mut print).map_err(|error| not_opened(&error))?;
    println!(
        "{} uploads, {} bytes stored: {} findings, {} repaired",
        checked.uploads, checked.stored, checked.findings, checked.repaired
    );
    let left = checked.findings - checked.repaired;
    Ok(if left == 0 { Exit::Done } else { Exit::Unexpected })
}

fn export(view: &View, id: UploadId, path: &Path, partial: bool) -> Result<Exit, Failure> {
    let upload = view.get(id).map_err(|error| failed(&error))?;
    let upload = upload.ok_or_else(|| Failure::usage(format!("the spool has no upload {id}")))?;
    if !upload.state.keeps_payload() {
        return Err(Failure::usage(format!(
            "the spool no longer has the bytes of upload {id}, which is {}",
            upload.state
        )));
    }
    let payload = view.payload(id).map_err(|error| failed(&error))?;
    let (readable, spoilt) = readable(&upload, &payload)?;
    let missing = missing_words(&upload, &readable, &spoilt);
    if readable.len() < upload.total && !partial {
        return Err(Failure::plain(Exit::File, missing).hint("--partial writes what is there"));
    }
    let cannot = |error| Failure::new(Exit::File, format!("cannot write {}", path.display()), error);
    let file = File::options().write(true).create_new(true).mode(0o600).open(path).map_err(cannot)?;
    write_out(&payload, &readable, upload.total, &file).map_err(|error| {
        // Half a file would be taken for a whole one.
        let _ = fs::remove_file(path);
        cannot(error)
    })?;
    eprintln!("hoop: {} of {} bytes are in {}", readable.len(), upload.total, path.display());
    if readable.len() < upload.total {
        eprintln!("hoop: {missing}");
        return Ok(Exit::Done);
    }
    eprintln!("hoop: to send it to its service: curl --data-binary '@{}' '{}'", path.display(), upload.dest);
    Ok(Exit::Done)
}

/// What is stored as it was written, and what is stored and spoilt.
fn readable(upload: &Upload, payload: &Payload) -> Result<(RangeSet, RangeSet), Failure> {
    let (mut readable, mut spoilt) = (upload.stored.clone(), RangeSet::new());
    for span in upload.stored.iter() {
        for range in payload.spoilt(span).map_err(|error| failed(&error))?.all().iter() {
            readable.remove(range);
            spoilt.insert(range);
        }
    }
    Ok((readable, spoilt))
}

fn missing_words(upload: &Upload, readable: &RangeSet, spoilt: &RangeSet) -> String {
    let missing: RangeSet = readable.missing(upload.total).collect();
    match spoilt.is_empty() {
        true => format!("bytes {missing} of upload {} are missing", upload.id),
        false => format!("bytes {missing} of upload {} are missing or spoilt on the disk", upload.id),
    }
}

fn write_out(payload: &Payload, ranges: &RangeSet, total: u64, file: &File) -> io::Result<()> {
    file.set_len(total)?;
    for span in ranges.iter() {
        let mut at = span.start;
        while at < span.end {
            let piece = ByteRange::new(at, span.end.min(at + PIECE_BYTES));
            let end = payload.border_before_end(piece);
            let mut bytes = vec![0; (end - at) as usize];
            payload.read_at(at, &mut bytes).map_err(|error| match error {
                ReadError::Store(StoreError::File(error)) => error,
                error => io::Error::other(error.to_string()),
            })?;
            file.write_all_at(&bytes, at)?;
            at = end;
        }
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_in_the_largest_unit_that_it_has_one_of() {
        assert_eq!([59, 60, 7_199, 86_399, 200_000].map(age), ["59 s", "1 min", "1 h", "23 h", "2 d"]);
    }
}
