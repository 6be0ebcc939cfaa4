//! What can be typed for the device's roles. What it means is for their own modules.

use crate::base::values::{Resolve, Span};
use clap::{Args, Subcommand, ValueEnum};
use hoop_client::WaitFor;
use hoop_seal::Suite;
use std::path::PathBuf;

/// The device's roles.
#[derive(Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one of it")]
pub enum DeviceCommand {
    /// Seal an upload, hand it to a gateway, and tell you when you may leave
    Push(PushFlags),
    /// Continue an upload that was interrupted
    Resume(ResumeFlags),
    /// Ask the service to hand a held, rejected or unknown upload to the application again
    Release(ReleaseFlags),
    /// Show what became of your uploads, and what your agent and your `hoop run` processes carry
    Status(StatusFlags),
    /// Seal an upload into a file or a pipe, so that you can bring it to a gateway by other means
    Seal(SealFlags),
    /// Open RFC 8188 content with a key (requires --raw)
    Open(OpenFlags),
    /// Check a receipt that `hoop push --receipt` saved
    #[command(subcommand)]
    Receipt(ReceiptCommand),
    /// Fetch tickets in advance, for a time when the service is out of reach
    Tickets(TicketsFlags),
}

impl DeviceCommand {
    /// Whether it lists all that is under way, for people.
    #[cfg(feature = "flow")]
    pub const fn lists_all(&self) -> bool {
        matches!(self, Self::Status(StatusFlags { id: None, json: false, .. }))
    }
}

/// The request, in curl's words.
#[derive(Args, Clone, Default)]
pub struct RequestFlags {
    /// The URL that the application's form posts to
    pub url: Option<String>,
    /// A form field: name=value, name=@file[;type=…][;filename=…], or name=<file
    #[arg(short = 'F', long = "form", value_name = "FIELD")]
    pub form: Vec<String>,
    /// The body: text, @file or @-, sent unchanged (unlike with curl's -d). Several -d are joined with &
    #[arg(short = 'd', long = "data-binary", visible_alias = "data", value_name = "DATA", conflicts_with = "form")]
    pub data: Vec<String>,
    /// Send this file as the body, with PUT. If the URL ends in /, the file's name is added
    #[arg(short = 'T', long = "upload-file", value_name = "FILE", conflicts_with_all = ["form", "data"])]
    pub upload_file: Option<String>,
    /// The request method
    #[arg(short = 'X', long = "request", value_name = "METHOD")]
    pub method: Option<String>,
    /// A header field. Authorization and Cookie go only to the service, with the request for a ticket
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub header: Vec<String>,
    /// Cookies: name=value; …
    #[arg(short = 'b', long = "cookie", value_name = "COOKIES")]
    pub cookie: Vec<String>,
    /// User and password, for HTTP Basic
    #[arg(short = 'u', long = "user", value_name = "USER:PASSWORD")]
    pub user: Option<String>,
    /// The encryption suite: aes256gcm or aes128gcm
    #[arg(long, value_name = "SUITE", default_value = "aes256gcm", value_parser = suite)]
    pub suite: Suite,
    #[command(flatten)]
    pub network: NetworkFlags,
}

/// How to reach others.
#[derive(Args, Clone, Default)]
pub struct NetworkFlags {
    /// Trust the certificates in this PEM file, in addition to the system's
    #[arg(long, visible_alias = "cacert", value_name = "FILE")]
    pub ca: Vec<PathBuf>,
    /// Use this address for this host and port, and do not look up the name
    #[arg(long, value_name = "HOST:PORT:ADDRESS")]
    pub resolve: Vec<Resolve>,
    /// Wait this long for a connection to the service
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub connect_timeout: Option<Span>,
    /// Remember uploads and tickets in this folder [default: $XDG_STATE_HOME/hoop or ~/.local/state/hoop]
    #[arg(long, value_name = "FOLDER", env = "HOOP_STATE")]
    pub state: Option<PathBuf>,
}

#[derive(Args)]
pub struct PushFlags {
    #[command(flatten)]
    pub request: RequestFlags,
    #[command(flatten)]
    pub hand: HandFlags,
    /// Save the service's signed receipt in this file, and stay until the application has answered
    #[arg(long, value_name = "FILE", conflicts_with = "plain")]
    pub receipt: Option<PathBuf>,
    /// Send the ordinary request: unsealed, and without a gateway
    #[arg(long)]
    pub plain: bool,
}

/// How an upload is handed over.
#[derive(Args)]
pub struct HandFlags {
    /// The gateway: auto (look for one), none, or a URL. Several URLs are tried in the given order
    #[arg(long, value_name = "auto|none|URL", env = "HOOP_GATEWAY", value_delimiter = ',', default_value = "auto")]
    pub gateway: Vec<String>,
    /// Stay until the upload has come this far
    #[arg(long, value_enum, default_value = "stored")]
    pub wait: Wait,
    /// After the upload is stored, wait at most this long for the state that --wait names [default: no limit]
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<Span>,
    /// The time, from now, by which the upload should reach the service. Gateways send the earliest deadline first
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<Span>,
    /// Give up after this long without progress
    #[arg(long, value_name = "TIME", default_value = "5m")]
    pub retry_max_time: Span,
    /// Wait this long for a gateway that disappears during the upload
    #[arg(long, value_name = "TIME", default_value = "15s")]
    pub gateway_patience: Span,
    /// While waiting: if no gateway delivers anything for this long, send the rest directly to the service
    #[arg(long, value_name = "TIME", default_value = "2m")]
    pub service_patience: Span,
    /// Rely on the gateway even if it shows no key, or a key other than the one known here
    #[arg(long)]
    pub trust_new_gateway: bool,
    /// Print one JSON object on the standard output
    #[arg(long)]
    pub json: bool,
    /// Print only errors
    #[arg(short = 'q', long, visible_alias = "silent", visible_short_alias = 's')]
    pub quiet: bool,
    /// Print more detail
    #[arg(short, long)]
    pub verbose: bool,
}

#[derive(Args)]
pub struct ResumeFlags {
    /// The upload's id, or its first digits
    pub id: String,
    #[command(flatten)]
    pub network: NetworkFlags,
    #[command(flatten)]
    pub hand: HandFlags,
}

#[derive(Args)]
pub struct ReleaseFlags {
    /// The upload's id, or its first digits
    pub id: String,
    /// The Authorization or Cookie header of a session that is valid now
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub header: Vec<String>,
    /// The cookies of a session that is valid now: name=value; …
    #[arg(short = 'b', long = "cookie", value_name = "COOKIES")]
    pub cookie: Vec<String>,
    /// User and password, for HTTP Basic
    #[arg(short = 'u', long = "user", value_name = "USER:PASSWORD")]
    pub user: Option<String>,
    /// Also hand over an upload whose state is `unknown`. If the application already has that upload, it gets it twice
    #[arg(long)]
    pub even_twice: bool,
    /// Wait this long for the application's answer
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub timeout: Span,
    #[command(flatten)]
    pub network: NetworkFlags,
    /// Print JSON on the standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct StatusFlags {
    /// Show one upload in full: its id, or the first digits
    pub id: Option<String>,
    /// Save the upload's receipt in this file
    #[arg(long, value_name = "FILE", requires = "id")]
    pub receipt: Option<PathBuf>,
    #[command(flatten)]
    pub network: NetworkFlags,
    /// Print JSON on the standard output
    #[arg(long)]
    pub json: bool,
    /// List this many uploads
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
    pub count: usize,
}

/// What can be done with receipts.
#[derive(Subcommand)]
pub enum ReceiptCommand {
    /// Check that a receipt is genuine, and that it is for these files
    Verify(VerifyFlags),
}

#[derive(Args)]
pub struct VerifyFlags {
    /// The file that holds the receipt
    pub receipt: PathBuf,
    /// The files that were pushed, in the same order
    pub files: Vec<PathBuf>,
    /// The request body that the application received, instead of files
    #[arg(long, value_name = "FILE", conflicts_with = "files")]
    pub body: Option<PathBuf>,
    /// The service's public key, from another source [default: what the service publishes now]
    #[arg(long, value_name = "BASE64URL")]
    pub key: Option<String>,
    /// The service's public keys, from another source: a copy of /.well-known/hoop
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    pub keys: Option<PathBuf>,
    /// Do not ask the service. Without --key or --keys, this proves nothing (exit code 11)
    #[arg(long)]
    pub offline: bool,
    #[command(flatten)]
    pub network: NetworkFlags,
    /// Print JSON on the standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct SealFlags {
    #[command(flatten)]
    pub request: RequestFlags,
    /// Write to this file [default: the standard output]
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub raw: RawFlags,
}

/// RFC 8188 alone.
#[derive(Args, Default)]
pub struct RawFlags {
    /// Use only the RFC 8188 content coding, from the standard input to the standard output
    #[arg(long, requires = "key")]
    pub raw: bool,
    /// The input keying material, in base64url
    #[arg(long, value_name = "BASE64URL", conflicts_with = "key_file")]
    pub key: Option<String>,
    /// A file that holds the input keying material as raw bytes
    #[arg(long, visible_alias = "ikm", value_name = "FILE", id = "key_file")]
    pub key_file: Option<PathBuf>,
    /// The salt, in base64url [default: random]
    #[arg(long, value_name = "BASE64URL", requires = "raw")]
    pub salt: Option<String>,
    /// The record size
    #[arg(long, value_name = "BYTES", default_value_t = hoop_seal::RECORD_SIZE)]
    pub record_size: u32,
    /// The key id, in hexadecimal
    #[arg(long, value_name = "HEX", default_value = "")]
    pub key_id: String,
}

#[derive(Args)]
pub struct OpenFlags {
    /// Use only the RFC 8188 content coding, from the standard input to the standard output
    #[arg(long, required = true)]
    pub raw: bool,
    /// The input keying material, in base64url
    #[arg(long, value_name = "BASE64URL", required_unless_present = "key_file", conflicts_with = "key_file")]
    pub key: Option<String>,
    /// A file that holds the input keying material as raw bytes
    #[arg(long, visible_alias = "ikm", value_name = "FILE", id = "key_file")]
    pub key_file: Option<PathBuf>,
    /// The encryption suite: aes256gcm or aes128gcm
    #[arg(long, value_name = "SUITE", default_value = "aes256gcm", value_parser = suite)]
    pub suite: Suite,
}

#[derive(Args)]
pub struct TicketsFlags {
    #[command(flatten)]
    pub request: RequestFlags,
    /// Fetch this many tickets
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub count: u8,
    /// Print one JSON object on the standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Wait {
    /// The gateway has it on disk, or the service has if there is no gateway: you may leave
    Stored,
    /// The service has it
    Received,
    /// The application has answered
    Accepted,
}

impl From<Wait> for WaitFor {
    fn from(wait: Wait) -> Self {
        match wait {
            Wait::Stored => Self::Stored,
            Wait::Received => Self::Received,
            Wait::Accepted => Self::Accepted,
        }
    }
}

fn suite(text: &str) -> Result<Suite, String> {
    Suite::by_name(text).ok_or_else(|| format!("expected aes256gcm or aes128gcm, not `{text}`"))
}
