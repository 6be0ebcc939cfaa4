//! What a relay says of an upload before the answer to it (`docs/edge.md`).
//!
//! An upload is an exchange whose request is no safe one (RFC 9110 §9.2.1). A relay with a store keeps the whole on disk before it passes anything on. So it can say after a restart how much it has, and whether a server may have acted on it. Its stream
//! begins with the id of its journal and how much it has ([`Told`]), says how that grows, and after [`Told::Whole`] or [`Told::Streamed`] goes on as that of any exchange.

use hoop_endpoint::{FlowReader, FlowWriter};
use std::fmt;
use std::io;
use std::str::FromStr;
use tokio::io::AsyncReadExt as _;

/// A relay's memory of what it has passed on. As long as the id is the same, an upload that the relay knows nothing of was never passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalId(pub [u8; 16]);

impl JournalId {
    /// That of a relay that keeps nothing.
    pub const NONE: Self = Self([0; 16]);
}

impl fmt::Display for JournalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl FromStr for JournalId {
    type Err = hex::FromHexError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut id = [0; 16];
        hex::decode_to_slice(text, &mut id)?;
        Ok(Self(id))
    }
}

/// How far an upload has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// So many bytes of the body are on the relay's disk.
    Has(u64),
    /// The body is passed on as it comes: there is no store, or no room in it.
    Streamed,
    /// All of it is on disk. The answer follows.
    Whole,
}

impl Told {
    fn encode(self) -> [u8; 8] {
        let number = match self {
            Self::Has(bytes) => bytes.min(u64::MAX - 2),
            Self::Streamed => u64::MAX - 1,
            Self::Whole => u64::MAX,
        };
        number.to_be_bytes()
    }

    const fn decode(number: u64) -> Self {
        const STREAMED: u64 = u64::MAX - 1;
        match number {
            u64::MAX => Self::Whole,
            STREAMED => Self::Streamed,
            bytes => Self::Has(bytes),
        }
    }

    /// Writes it.
    ///
    /// # Errors
    /// If the flow is over.
    pub async fn write(self, writer: &mut FlowWriter) -> io::Result<()> {
        writer.write_chunk(self.encode().to_vec().into()).await
    }

    /// Reads the next one.
    ///
    /// # Errors
    /// If the stream ends before.
    pub async fn read(reader: &mut FlowReader) -> io::Result<Self> {
        reader.read_u64().await.map(Self::decode)
    }
}

/// What a relay's stream begins with.
///
/// # Errors
/// If the flow is over.
pub async fn greet(journal: JournalId, has: Told, writer: &mut FlowWriter) -> io::Result<()> {
    writer.write_chunk([&journal.0[..], &has.encode()].concat().into()).await
}

/// Reads what a relay's stream begins with.
///
/// # Errors
/// If the stream ends before.
pub async fn greeted(reader: &mut FlowReader) -> io::Result<(JournalId, Told)> {
    let mut id = [0; 16];
    reader.read_exact(&mut id).await?;
    Ok((JournalId(id), Told::read(reader).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read_as_it_was_meant() {
        for told in [Told::Has(0), Told::Has(1 << 40), Told::Streamed, Told::Whole] {
            assert_eq!(Told::decode(u64::from_be_bytes(told.encode())), told);
        }
        let id = JournalId([0xab; 16]);
        assert_eq!(id.to_string().parse(), Ok(id));
    }
}
