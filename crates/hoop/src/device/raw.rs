//! `hoop seal --raw` and `hoop open --raw`: RFC 8188 content coding alone, streaming, in the memory of one record; for
//! checking other implementations against this one.

use super::flags::{OpenFlags, RawFlags};
use crate::base::exit::{Exit, Failure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_http::Rng;
use hoop_seal::{ContentKey, Opener, Prelude, PreludeError, Sealer, Suite};
use std::io::{self, Read, Write};
use std::path::Path;

/// Bytes read at a time.
const PIECE: usize = 256 * 1024;

/// Seals the standard input.
pub fn seal(flags: &RawFlags, suite: Suite) -> Result<Exit, Failure> {
    let ikm = keying_material(flags.key.as_deref(), flags.key_file.as_deref())?;
    let salt = match &flags.salt {
        None => Rng.bytes(),
        Some(text) => decode(text, "--salt")?
            .try_into()
            .map_err(|_| Failure::usage("--salt must have 16 bytes (22 characters of base64url)"))?,
    };
    let key_id = hex::decode(&flags.key_id).map_err(|_| Failure::usage("--key-id must be hexadecimal"))?;
    let prelude = Prelude::new(salt, flags.record_size, &key_id).map_err(Failure::usage)?;
    let key = ContentKey::from_keying_material(suite, &ikm, &salt);
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    seal_stream(key, &prelude, &mut input, &mut output).map_err(io_failure)?;
    Ok(Exit::Done)
}

fn seal_stream(key: ContentKey, prelude: &Prelude, input: &mut impl Read, output: &mut impl Write) -> io::Result<()> {
    let mut sealed = Vec::new();
    let mut sealer = Sealer::new(key, prelude, &mut sealed);
    let mut piece = vec![0; PIECE];
    loop {
        match input.read(&mut piece)? {
            0 => break,
            len => sealer.push(&piece[..len], &mut sealed),
        }
        output.write_all(&sealed)?;
        sealed.clear();
    }
    sealer.finish(&mut sealed);
    output.write_all(&sealed)?;
    output.flush()
}

/// Opens the standard input. What was written before a failure is genuine, and not all of it.
pub fn open(flags: &OpenFlags) -> Result<Exit, Failure> {
    let ikm = keying_material(flags.key.as_deref(), flags.key_file.as_deref())?;
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    open_stream(flags.suite, &ikm, &mut input, &mut output)?;
    Ok(Exit::Done)
}

fn open_stream(suite: Suite, ikm: &[u8], input: &mut impl Read, output: &mut impl Write) -> Result<(), Failure> {
    let broken = |error: &dyn std::fmt::Display| {
        Failure::new(Exit::Refused, "cannot open the content", error).hint("check the key and --suite")
    };
    let mut head = Vec::new();
    let prelude = loop {
        match Prelude::parse(&head) {
            Ok(prelude) => break prelude,
            Err(error @ PreludeError::Incomplete { needed }) => {
                let more = (needed - head.len()) as u64;
                let read = input.by_ref().take(more).read_to_end(&mut head).map_err(io_failure)?;
                if (read as u64) < more {
                    return Err(broken(&error));
                }
            }
            Err(error) => return Err(broken(&error)),
        }
    };
    let mut opener = Opener::new(ContentKey::from_keying_material(suite, ikm, prelude.salt()), &prelude);
    let (mut piece, mut opened) = (vec![0; PIECE], Vec::new());
    loop {
        let len = input.read(&mut piece).map_err(io_failure)?;
        if len == 0 {
            break;
        }
        let pushed = opener.push(&piece[..len], &mut opened);
        output.write_all(&opened).map_err(io_failure)?;
        opened.clear();
        pushed.map_err(|error| broken(&error))?;
    }
    opener.finish(&mut opened).map_err(|error| broken(&error))?;
    output.write_all(&opened).and_then(|()| output.flush()).map_err(io_failure)
}

fn keying_material(text: Option<&str>, file: Option<&Path>) -> Result<Vec<u8>, Failure> {
    match (text, file) {
        (Some(text), _) => decode(text, "--key"),
        (None, Some(path)) => std::fs::read(path)
            .map_err(|error| Failure::new(Exit::File, format!("cannot read {}", path.display()), error)),
        (None, None) => Err(Failure::usage("--raw needs --key or --key-file")),
    }
}

fn decode(text: &str, flag: &str) -> Result<Vec<u8>, Failure> {
    let decoded = URL_SAFE_NO_PAD.decode(text.trim_end_matches('='));
    decoded.map_err(|_| Failure::usage(format!("{flag} must be base64url")))
}

fn io_failure(error: io::Error) -> Failure {
    Failure::new(Exit::File, "cannot read or write the content", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8188 §3.1: one record, and the key id empty.
    #[test]
    fn the_example_of_the_rfc_opens() {
        let ikm = decode("yqdlZ-tYemfogSmv7Ws5PQ", "--key").unwrap();
        let body = decode("I1BsxtFttlv3u_Oo94xnmwAAEAAA-NAVub2qFgBEuQKRapoZu-IxkIva3MEB1PD-ly8Thjg", "").unwrap();
        let mut out = Vec::new();
        open_stream(Suite::Aes128Gcm, &ikm, &mut &body[..], &mut out).unwrap();
        assert_eq!(out, b"I am the walrus");
        let (prelude, mut sealed) = (Prelude::parse(&body).unwrap(), Vec::new());
        let key = ContentKey::from_keying_material(Suite::Aes128Gcm, &ikm, prelude.salt());
        seal_stream(key, &prelude, &mut &out[..], &mut sealed).unwrap();
        assert_eq!(sealed, body);
    }

    #[test]
    fn what_does_not_open_is_refused_and_not_released() {
        for body in [&b"short"[..], &[0; 21], &[7; 100]] {
            let mut out = Vec::new();
            let failure = open_stream(Suite::Aes256Gcm, &[1; 32], &mut &body[..], &mut out).unwrap_err();
            assert_eq!((failure.exit, out.len()), (Exit::Refused, 0));
        }
    }
}
