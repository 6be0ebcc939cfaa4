//! Seals standard input, or opens it, to standard output (RFC 8188), in the memory of one record:
//!
//! ```text
//! ece seal --key BASE64URL [--suite aes256gcm] [--record-size 65536] [--key-id HEX] <plaintext >sealed
//! ece open --key BASE64URL [--suite aes256gcm] <sealed >plaintext
//! ```
//!
//! The key is the input keying material as it is: 32 octets for `aes256gcm`, 16 for `aes128gcm`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_seal::{ContentKey, Opener, Prelude, PreludeError, RECORD_SIZE, Sealer, Suite};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::error::Error;
use std::io::{self, Read, Write};
use std::process::ExitCode;

/// How much is read at once.
const PIECE: usize = 64 * 1024;

type Outcome<T> = Result<T, Box<dyn Error>>;

struct Options {
    key: Vec<u8>,
    suite: Suite,
    record_size: u32,
    key_id: Vec<u8>,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ece: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let verb = arguments.next();
    let options = Options::parse(arguments)?;
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    match verb.as_deref() {
        Some("seal") => seal(&options, &mut input, &mut output)?,
        Some("open") => open(&options, &mut input, &mut output)?,
        _ => return Err("expected `seal` or `open`".into()),
    }
    Ok(output.flush()?)
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Outcome<Self> {
        let mut options =
            Self { key: Vec::new(), suite: Suite::default(), record_size: RECORD_SIZE, key_id: Vec::new() };
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--key" => options.key = URL_SAFE_NO_PAD.decode(value).map_err(|error| error.to_string())?,
                "--suite" => options.suite = Suite::by_name(&value).ok_or_else(|| format!("no such suite: {value}"))?,
                "--record-size" => options.record_size = value.parse()?,
                "--key-id" => options.key_id = hex::decode(value).map_err(|error| error.to_string())?,
                _ => return Err(format!("no such option: {name}").into()),
            }
        }
        Ok(options)
    }

    fn content_key(&self, prelude: &Prelude) -> ContentKey {
        ContentKey::from_keying_material(self.suite, &self.key, prelude.salt())
    }
}

fn seal(options: &Options, input: &mut impl Read, output: &mut impl Write) -> Outcome<()> {
    let mut salt = [0; 16];
    SystemRandom::new().fill(&mut salt).map_err(|_| "the system gives no random octets")?;
    let prelude = Prelude::new(salt, options.record_size, &options.key_id)?;
    let mut sealed = Vec::new();
    let mut sealer = Sealer::new(options.content_key(&prelude), &prelude, &mut sealed);
    for_each_piece(input, |piece| {
        sealer.push(piece, &mut sealed);
        flush(&mut sealed, output)
    })?;
    sealer.finish(&mut sealed);
    flush(&mut sealed, output)
}

fn open(options: &Options, input: &mut impl Read, output: &mut impl Write) -> Outcome<()> {
    let prelude = read_prelude(input)?;
    let mut opener = Opener::new(options.content_key(&prelude), &prelude);
    let mut plaintext = Vec::new();
    for_each_piece(input, |piece| {
        opener.push(piece, &mut plaintext)?;
        flush(&mut plaintext, output)
    })?;
    opener.finish(&mut plaintext)?;
    flush(&mut plaintext, output)
}

/// Reads as much as the prelude takes, and not an octet more.
fn read_prelude(input: &mut impl Read) -> Outcome<Prelude> {
    let mut octets = Vec::new();
    loop {
        match Prelude::parse(&octets) {
            Err(PreludeError::Incomplete { needed }) => {
                let have = octets.len();
                octets.resize(needed, 0);
                input.read_exact(&mut octets[have..])?;
            }
            outcome => return Ok(outcome?),
        }
    }
}

fn for_each_piece(input: &mut impl Read, mut take: impl FnMut(&[u8]) -> Outcome<()>) -> Outcome<()> {
    let mut piece = vec![0; PIECE];
    loop {
        match input.read(&mut piece)? {
            0 => return Ok(()),
            len => take(&piece[..len])?,
        }
    }
}

fn flush(octets: &mut Vec<u8>, output: &mut impl Write) -> Outcome<()> {
    output.write_all(octets)?;
    octets.clear();
    Ok(())
}
