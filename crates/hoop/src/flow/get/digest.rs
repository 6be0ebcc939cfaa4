//! What shows that a file is the right one: [`Expected`], from the command line or from `Repr-Digest` (RFC 9530).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use ring::digest::{Algorithm, Context, SHA256, SHA512};
use std::fs::File;
use std::io::{self, Read as _, Seek as _};

/// A digest that a whole file must have.
#[derive(Clone, Debug)]
pub struct Expected {
    algorithm: &'static Algorithm,
    value: Vec<u8>,
}

impl PartialEq for Expected {
    fn eq(&self, other: &Self) -> bool {
        self.algorithm == other.algorithm && self.value == other.value
    }
}

/// So much is read at once.
const STEP: usize = 256 << 10;

impl Expected {
    /// A SHA-256 as people write it.
    ///
    /// # Errors
    /// If it is no such number.
    pub fn sha256(text: &str) -> Result<Self, String> {
        let value = hex::decode(text).ok().filter(|value| value.len() == SHA256.output_len());
        value
            .map(|value| Self { algorithm: &SHA256, value })
            .ok_or_else(|| "64 hexadecimal digits are wanted".to_owned())
    }

    /// What a server says of the whole representation: SHA-512 if it says that, or else SHA-256. Others are insecure, or unknown here.
    pub fn told(headers: &HeaderMap) -> Option<Self> {
        let lines: Vec<&str> = headers.get_all("repr-digest").iter().filter_map(|line| line.to_str().ok()).collect();
        Self::read(&lines.join(","))
    }

    /// What the value of a `Repr-Digest` says.
    pub fn read(field: &str) -> Option<Self> {
        let members = || field.split(',').filter_map(|member| member.trim().split_once('='));
        let find = |name: &str, algorithm: &'static Algorithm| {
            // A later member takes an earlier one's place (RFC 9651 §3.2).
            let (_, value) = members().rfind(|(key, _)| *key == name)?;
            // Parameters say nothing of the value.
            let coded = value.split(';').next()?.trim().strip_prefix(':')?.strip_suffix(':')?;
            let value = STANDARD.decode(coded).ok().filter(|value| value.len() == algorithm.output_len())?;
            Some(Self { algorithm, value })
        };
        find("sha-512", &SHA512).or_else(|| find("sha-256", &SHA256))
    }

    /// The value of a `Repr-Digest` that says it.
    pub fn field(&self) -> String {
        let name = if self.algorithm == &SHA512 { "sha-512" } else { "sha-256" };
        format!("{name}=:{}:", STANDARD.encode(&self.value))
    }

    /// Whether a file has it, from its beginning on.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn is_of(&self, file: &mut File) -> io::Result<bool> {
        let (mut context, mut buffer) = (Context::new(self.algorithm), vec![0; STEP]);
        file.rewind()?;
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(context.finish().as_ref() == self.value),
                len => context.update(&buffer[..len]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    fn told(lines: &[&str]) -> Option<Expected> {
        let headers = lines.iter().map(|line| (http::HeaderName::from_static("repr-digest"), line.parse().unwrap()));
        Expected::told(&headers.collect())
    }

    #[test]
    fn the_strongest_digest_that_a_server_tells_is_taken() {
        let plain = Expected::sha256(HELLO).unwrap();
        let of_hello = "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:";
        assert_eq!(told(&[of_hello]).unwrap(), plain);
        assert_eq!(told(&["md5=:AAAA:", &format!("{of_hello};x=1")]).unwrap(), plain);
        let of_512 = format!("sha-512=:{}:", STANDARD.encode([7; 64]));
        let strong = told(&[of_hello, &of_512]).unwrap();
        assert_eq!(strong.value, [7; 64]);
        assert_eq!((plain.field(), strong.field()), (of_hello.to_owned(), of_512));
        for other in ["", "sha-256", "sha-256=LPJN", "sha-256=:LPJN:", "sha-256=:?:", "md5=:AAAA:"] {
            assert_eq!(told(&[other]), None, "{other}");
        }
    }

    #[test]
    fn a_file_is_read_from_its_beginning() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"hello").unwrap();
        assert!(Expected::sha256(HELLO).unwrap().is_of(&mut file).unwrap());
        file.write_all(b"!").unwrap();
        assert!(!Expected::sha256(HELLO).unwrap().is_of(&mut file).unwrap());
        assert!(Expected::sha256("2cf2").is_err());
    }
}
