//! Sealing and opening a stream, record by record, in the memory of one record: [`Sealer`] and [`Opener`].

use crate::prelude::{Prelude, PreludeError};
use crate::record::{ContentKey, OpenError, RECORD_OVERHEAD};
use alloc::vec::Vec;

/// Seals a stream of unknown length. Push plaintext in pieces of any size; sealed bytes are appended to `out`.
///
/// A full record is held back until more comes, since the last one is marked.
#[derive(Debug)]
pub struct Sealer {
    key: ContentKey,
    record: Vec<u8>,
    room: usize,
    index: u64,
}

impl Sealer {
    /// A sealer for the body that `prelude` begins; `key` belongs to the prelude's salt. Appends the prelude to `out`.
    pub fn new(key: ContentKey, prelude: &Prelude, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(&prelude.encode());
        let record_size = prelude.record_size() as usize;
        Self { key, record: Vec::new(), room: record_size - RECORD_OVERHEAD as usize, index: 0 }
    }

    /// Seals `plaintext`, as far as it fills records that are not the last.
    pub fn push(&mut self, mut plaintext: &[u8], out: &mut Vec<u8>) {
        while self.record.len() + plaintext.len() > self.room {
            let (piece, rest) = plaintext.split_at(self.room - self.record.len());
            self.emit(piece, false, out);
            plaintext = rest;
        }
        self.record.extend_from_slice(plaintext);
    }

    /// Seals the last record.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        self.emit(&[], true, out);
    }

    /// Seals what was held back and `piece` as one record, in place in `out`: each byte is copied once.
    fn emit(&mut self, piece: &[u8], last: bool, out: &mut Vec<u8>) {
        let start = out.len();
        out.append(&mut self.record);
        out.extend_from_slice(piece);
        out.resize(out.len() + RECORD_OVERHEAD as usize, 0);
        self.key.seal_slice(self.index, last, &mut out[start..]);
        self.index += 1;
    }
}

/// A stream does not open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenStreamError {
    /// Its prelude is none.
    #[error(transparent)]
    Prelude(#[from] PreludeError),
    /// A record does not open.
    #[error(transparent)]
    Record(#[from] OpenError),
    /// It ends before its last record has.
    #[error("the body ends before its last record has")]
    Truncated,
}

/// Opens a stream. Push sealed bytes in pieces of any size; plaintext is appended to `out` once its record is
/// authentic, so what was released before an error is genuine.
#[derive(Debug)]
pub struct Opener {
    key: ContentKey,
    record: Vec<u8>,
    record_size: usize,
    index: u64,
}

impl Opener {
    /// An opener for the bytes that follow `prelude`; `key` belongs to the prelude's salt.
    pub fn new(key: ContentKey, prelude: &Prelude) -> Self {
        Self { key, record: Vec::new(), record_size: prelude.record_size() as usize, index: 0 }
    }

    /// Opens the records that `sealed` completes and that are not the last.
    ///
    /// # Errors
    /// At the first record that does not open; nothing more may be pushed then.
    pub fn push(&mut self, mut sealed: &[u8], out: &mut Vec<u8>) -> Result<(), OpenStreamError> {
        while self.record.len() + sealed.len() > self.record_size {
            let (piece, rest) = sealed.split_at(self.record_size - self.record.len());
            self.emit(piece, false, out)?;
            sealed = rest;
        }
        // A foreign record size may be gigabytes: the buffer grows with what comes, not with what is announced.
        self.record.extend_from_slice(sealed);
        Ok(())
    }

    /// Opens the last record: the stream has ended.
    ///
    /// # Errors
    /// If it is missing, not marked as the last, or does not open.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<(), OpenStreamError> {
        match self.record.is_empty() {
            true => Err(OpenStreamError::Truncated),
            false => self.emit(&[], true, out),
        }
    }

    /// Opens what was held back and `piece` as one record, in place in `out`; nothing stays there if it does not open.
    fn emit(&mut self, piece: &[u8], last: bool, out: &mut Vec<u8>) -> Result<(), OpenStreamError> {
        let start = out.len();
        out.append(&mut self.record);
        out.extend_from_slice(piece);
        let opened = self.key.open(self.index, last, &mut out[start..]).map(|plaintext| plaintext.len());
        out.truncate(start + *opened.as_ref().unwrap_or(&0));
        self.index += 1;
        match opened {
            Ok(_) => Ok(()),
            Err(OpenError::Misplaced { says_last: false, .. }) => Err(OpenStreamError::Truncated),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Suite, UploadKey};
    use proptest::prelude::*;

    fn key(prelude: &Prelude) -> ContentKey {
        ContentKey::new(Suite::Aes256Gcm, &UploadKey([3; 32]), prelude.salt())
    }

    fn seal(prelude: &Prelude, pieces: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut sealer = Sealer::new(key(prelude), prelude, &mut out);
        pieces.iter().for_each(|piece| sealer.push(piece, &mut out));
        sealer.finish(&mut out);
        out
    }

    fn open<'a>(
        prelude: &Prelude,
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> (Vec<u8>, Result<(), OpenStreamError>) {
        let mut out = Vec::new();
        let mut opener = Opener::new(key(prelude), prelude);
        for piece in pieces {
            if let Err(error) = opener.push(piece, &mut out) {
                return (out, Err(error));
            }
        }
        let result = opener.finish(&mut out);
        (out, result)
    }

    proptest! {
        #[test]
        fn a_stream_survives_however_it_is_cut(
            record_size in 18u32..80,
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..8),
            cut in 1usize..90,
        ) {
            let prelude = Prelude::new([4; 16], record_size, b"ticket").unwrap();
            let z = seal(&prelude, &pieces);
            let layout = crate::Layout::for_plaintext(prelude.len(), record_size, pieces.concat().len() as u64).unwrap();
            prop_assert_eq!(z.len() as u64, layout.total());
            prop_assert_eq!(&Prelude::parse(&z).unwrap(), &prelude);
            let (plaintext, result) = open(&prelude, z[prelude.len()..].chunks(cut));
            prop_assert_eq!(result, Ok(()));
            prop_assert_eq!(plaintext, pieces.concat());
        }

        #[test]
        fn every_truncation_is_noticed_and_releases_only_what_is_genuine(
            plaintext in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(),
        ) {
            let prelude = Prelude::new([4; 16], 40, b"").unwrap();
            let z = seal(&prelude, core::slice::from_ref(&plaintext));
            let sealed = &z[prelude.len()..];
            let (released, result) = open(&prelude, [&sealed[..at.index(sealed.len())]]);
            prop_assert!(result.is_err());
            prop_assert!(plaintext.starts_with(&released));
        }
    }
}
