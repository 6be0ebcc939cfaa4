//! `hoop agent trust`: a local authority for the hosts that browsers entrust to the relay.

use crate::base::exit::{Exit, Failure};
use crate::base::output::Output;
use clap::Args;
use hoop_agent::{AuthorityFile, EntrustedHost};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct Flags {
    /// The hosts, each with all hosts below it
    #[arg(value_name = "HOST[:PORT]", required = true)]
    hosts: Vec<EntrustedHost>,
    /// Write the authority here, with its key, readable only by its owner; and its certificate, for browsers, beside it as FILE.crt
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// Makes an authority, and says what to do with it.
pub fn run(flags: &Flags) -> Result<Exit, Failure> {
    let names = flags.hosts.iter().map(EntrustedHost::to_string).collect::<Vec<_>>().join(", ");
    let made = AuthorityFile::new(&format!("hoop agent: {names}"), &flags.hosts, AuthorityFile::now());
    let (file, certificate) =
        made.map_err(|error| Failure::new(Exit::Unexpected, "cannot make an authority", error))?;
    let text = toml::to_string(&file).map_err(|error| Failure::new(Exit::Unexpected, "cannot write TOML", error))?;
    let path = certificate_path(&flags.output);
    let (output, beside) = (Output::create(&flags.output)?, Output::create(&path)?);
    output.write(&text)?;
    beside.write(&certificate)?;
    // It is for others to read: browsers of other users may trust it, too.
    let readable = fs::set_permissions(&path, fs::Permissions::from_mode(0o644));
    readable.map_err(|error| Failure::new(Exit::File, format!("cannot write {}", path.display()), error))?;
    let (authority, path) = (flags.output.display(), path.display());
    println!(
        "The relay will read, and could change, what your browser and these hosts say to each other: {names}.\n\
         1. Start the agent with: --authority {authority}\n\
         2. Let your browser trust {path}, which holds for these hosts alone, for a year:\n   \
            Firefox: Settings, Privacy & Security, View Certificates, Authorities, Import\n   \
            Chromium: certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n 'hoop agent' -i {path}\n   \
            curl: --cacert {path}, for these hosts\n\
         Keep {authority} to yourself: whoever has it can pose as these hosts before your browser."
    );
    Ok(Exit::Done)
}

/// `FILE.crt`.
fn certificate_path(authority: &Path) -> PathBuf {
    let mut path = authority.as_os_str().to_owned();
    path.push(".crt");
    path.into()
}

/// The authority in a file that nobody else can read.
pub fn read(path: &Path) -> Result<AuthorityFile, Failure> {
    let unusable = |error: &dyn std::fmt::Display| {
        Failure::new(Exit::File, format!("{} is not a file that `hoop agent trust` made", path.display()), error)
    };
    let unread = |error: io::Error| {
        Failure::new(Exit::File, format!("cannot read {}", path.display()), error)
            .hint("`hoop agent trust` makes such a file")
    };
    let mode = fs::metadata(path).map_err(unread)?.mode();
    if mode & 0o077 != 0 {
        return Err(unusable(&format!("others may read it: chmod 600 {}", path.display())));
    }
    let text = fs::read_to_string(path).map_err(unread)?;
    if text.starts_with("-----BEGIN CERTIFICATE") {
        return Err(unusable(&"it is the certificate, which is for browsers"));
    }
    toml::from_str(&text).map_err(|_| unusable(&"it says other things"))
}
