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
    /// Seal an upload, hand it to the gateway, and say when you may leave
    Push(PushFlags),
    /// Go on with an upload that did not come to its end
    Resume(ResumeFlags),
    /// Have the service hand an upload to the application again: one that is held, rejected or unknown
    Release(ReleaseFlags),
    /// Tell what has become of uploads
    Status(StatusFlags),
    /// Seal an upload into a file or a pipe, for whoever carries it
    Seal(SealFlags),
    /// Open RFC 8188 content with a key (needs --raw)
    Open(OpenFlags),
    /// Check a receipt that `hoop push --receipt` kept
    #[command(subcommand)]
    Receipt(ReceiptCommand),
    /// Fetch tickets ahead, for when the service will be out of reach
    Tickets(TicketsFlags),
}

/// The request, in curl's words.
#[derive(Args, Clone, Default)]
pub struct RequestFlags {
    /// Where to: the URL that the application's form posts to
    pub url: Option<String>,
    /// A form field: name=value, name=@file[;type=…][;filename=…], or name=<file
    #[arg(short = 'F', long = "form", value_name = "FIELD")]
    pub form: Vec<String>,
    /// The body: text, @file or @- (as it is, unlike curl's -d); several are joined with &
    #[arg(short = 'd', long = "data-binary", visible_alias = "data", value_name = "DATA", conflicts_with = "form")]
    pub data: Vec<String>,
    /// The body is this file, by PUT; after a URL that ends in / its name is added
    #[arg(short = 'T', long = "upload-file", value_name = "FILE", conflicts_with_all = ["form", "data"])]
    pub upload_file: Option<String>,
    /// The method
    #[arg(short = 'X', long = "request", value_name = "METHOD")]
    pub method: Option<String>,
    /// A header. Authorization and Cookie go to the service alone, with the request for a ticket
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub header: Vec<String>,
    /// Cookies, name=value; …
    #[arg(short = 'b', long = "cookie", value_name = "COOKIES")]
    pub cookie: Vec<String>,
    /// User and password (Basic)
    #[arg(short = 'u', long = "user", value_name = "USER:PASSWORD")]
    pub user: Option<String>,
    /// How to encipher
    #[arg(long, value_name = "SUITE", default_value = "aes256gcm", value_parser = suite)]
    pub suite: Suite,
    #[command(flatten)]
    pub network: NetworkFlags,
}

/// How to reach others.
#[derive(Args, Clone, Default)]
pub struct NetworkFlags {
    /// A PEM file of certificates to trust besides the system's
    #[arg(long, visible_alias = "cacert", value_name = "FILE")]
    pub ca: Vec<PathBuf>,
    /// Use this address for that name and port
    #[arg(long, value_name = "HOST:PORT:ADDRESS")]
    pub resolve: Vec<Resolve>,
    /// How long a connection to the service may take
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub connect_timeout: Option<Span>,
    /// Where uploads and tickets are remembered [default: $XDG_STATE_HOME/hoop or ~/.local/state/hoop]
    #[arg(long, value_name = "FOLDER", env = "HOOP_STATE")]
    pub state: Option<PathBuf>,
}

#[derive(Args)]
pub struct PushFlags {
    #[command(flatten)]
    pub request: RequestFlags,
    #[command(flatten)]
    pub hand: HandFlags,
    /// Keep the service's signed receipt in this file; stays until the application has answered
    #[arg(long, value_name = "FILE", conflicts_with = "plain")]
    pub receipt: Option<PathBuf>,
    /// Send the ordinary request, without gateway and seal
    #[arg(long)]
    pub plain: bool,
}

/// How an upload is handed over.
#[derive(Args)]
pub struct HandFlags {
    /// The gateway: auto (look for it), none, or its URL; several URLs are tried in their order
    #[arg(long, value_name = "auto|none|URL", env = "HOOP_GATEWAY", value_delimiter = ',', default_value = "auto")]
    pub gateway: Vec<String>,
    /// How far to stay
    #[arg(long, value_enum, default_value = "stored")]
    pub wait: Wait,
    /// How long to stay for --wait after it is stored [default: until it is settled]
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<Span>,
    /// How soon it should be at the service, from now: gateways deliver what has the earliest deadline first
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<Span>,
    /// How long to try without progress
    #[arg(long, value_name = "TIME", default_value = "5m")]
    pub retry_max_time: Span,
    /// How long a gateway that has gone half-way is waited for
    #[arg(long, value_name = "TIME", default_value = "15s")]
    pub gateway_patience: Span,
    /// While staying: how long the service may get nothing of what gateways have, until it is sent from here
    #[arg(long, value_name = "TIME", default_value = "2m")]
    pub service_patience: Span,
    /// Rely on the gateway that is there, though it shows no key or another than is known here
    #[arg(long)]
    pub trust_new_gateway: bool,
    /// One JSON object on the standard output
    #[arg(long)]
    pub json: bool,
    /// Say nothing but errors
    #[arg(short = 'q', long, visible_alias = "silent", visible_short_alias = 's')]
    pub quiet: bool,
    /// Say more
    #[arg(short, long)]
    pub verbose: bool,
}

#[derive(Args)]
pub struct ResumeFlags {
    /// Which; its first digits will do
    pub id: String,
    #[command(flatten)]
    pub network: NetworkFlags,
    #[command(flatten)]
    pub hand: HandFlags,
}

#[derive(Args)]
pub struct ReleaseFlags {
    /// Which; its first digits will do
    pub id: String,
    /// Authorization or Cookie of a session that is good now
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub header: Vec<String>,
    /// Cookies of a session that is good now, name=value; …
    #[arg(short = 'b', long = "cookie", value_name = "COOKIES")]
    pub cookie: Vec<String>,
    /// User and password (Basic)
    #[arg(short = 'u', long = "user", value_name = "USER:PASSWORD")]
    pub user: Option<String>,
    /// Also what is unknown: the application may have it already, and would have it twice
    #[arg(long)]
    pub even_twice: bool,
    /// How long to stay for the application's answer
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub timeout: Span,
    #[command(flatten)]
    pub network: NetworkFlags,
    /// JSON on the standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct StatusFlags {
    /// One upload, in full; its first digits will do
    pub id: Option<String>,
    /// Keep its receipt in this file
    #[arg(long, value_name = "FILE", requires = "id")]
    pub receipt: Option<PathBuf>,
    #[command(flatten)]
    pub network: NetworkFlags,
    /// JSON on the standard output
    #[arg(long)]
    pub json: bool,
    /// So many uploads
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
    pub count: usize,
}

/// What can be done with receipts.
#[derive(Subcommand)]
pub enum ReceiptCommand {
    /// Whether a receipt is the service's own, and for these files
    Verify(VerifyFlags),
}

#[derive(Args)]
pub struct VerifyFlags {
    /// The receipt
    pub receipt: PathBuf,
    /// The files that were pushed, in their order
    pub files: Vec<PathBuf>,
    /// The body as the application was sent it, instead of files
    #[arg(long, value_name = "FILE", conflicts_with = "files")]
    pub body: Option<PathBuf>,
    /// The service's public key, from elsewhere [default: what the service publishes now]
    #[arg(long, value_name = "BASE64URL")]
    pub key: Option<String>,
    /// The service's public keys, from elsewhere: what /.well-known/hoop once said
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    pub keys: Option<PathBuf>,
    /// Ask nobody. Without --key or --keys that proves nothing (exit code 11)
    #[arg(long)]
    pub offline: bool,
    #[command(flatten)]
    pub network: NetworkFlags,
    /// JSON on the standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct SealFlags {
    #[command(flatten)]
    pub request: RequestFlags,
    /// Write to this file instead of the standard output
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub raw: RawFlags,
}

/// RFC 8188 alone.
#[derive(Args, Default)]
pub struct RawFlags {
    /// RFC 8188 content coding alone, from the standard input to the standard output
    #[arg(long, requires = "key")]
    pub raw: bool,
    /// Input keying material, in base64url
    #[arg(long, value_name = "BASE64URL", conflicts_with = "key_file")]
    pub key: Option<String>,
    /// A file that holds the input keying material as it is
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
    /// RFC 8188 content coding alone, from the standard input to the standard output
    #[arg(long, required = true)]
    pub raw: bool,
    /// Input keying material, in base64url
    #[arg(long, value_name = "BASE64URL", required_unless_present = "key_file", conflicts_with = "key_file")]
    pub key: Option<String>,
    /// A file that holds the input keying material as it is
    #[arg(long, visible_alias = "ikm", value_name = "FILE", id = "key_file")]
    pub key_file: Option<PathBuf>,
    /// How it is enciphered
    #[arg(long, value_name = "SUITE", default_value = "aes256gcm", value_parser = suite)]
    pub suite: Suite,
}

#[derive(Args)]
pub struct TicketsFlags {
    #[command(flatten)]
    pub request: RequestFlags,
    /// How many
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub count: u8,
    /// One JSON object on the standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Wait {
    /// The gateway (or without one the service) has it on disk: you may leave
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
