//! A store without a disk: [`MemoryStore`].

use crate::{ATTACHMENT_MAX, ByteStore, Due, FlowStore, Found, Kept, Life, StoreError, When};
use hoop_flow::FlowName;
use hoop_units::ByteRange;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Both stores in memory, without bounds, expiry or a restart: for tests, and the model that the one on disk is held to.
#[derive(Debug, Default)]
pub struct MemoryStore {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    flows: BTreeMap<FlowName, Kept>,
    ended: BTreeMap<FlowName, u64>,
    /// From which offset on, and the bytes.
    bytes: BTreeMap<FlowName, (u64, Vec<u8>)>,
}

impl Inner {
    fn held(&self, name: FlowName) -> Option<ByteRange> {
        let (start, bytes) = self.bytes.get(&name)?;
        Some(ByteRange::new(*start, start + bytes.len() as u64))
    }
}

impl MemoryStore {}

impl FlowStore for MemoryStore {
    fn put(&self, kept: &Kept, _life: Life, _when: When) -> Result<(), StoreError> {
        if kept.attachment.len() > ATTACHMENT_MAX {
            return Err(StoreError::Attachment(kept.attachment.len()));
        }
        self.inner.lock().flows.insert(kept.record.name, kept.clone());
        Ok(())
    }

    fn take(&self, name: FlowName) -> Result<Found, StoreError> {
        let inner = self.inner.lock();
        if let Some(kept) = inner.flows.get(&name) {
            let mut kept = kept.clone();
            if let Some(held) = inner.held(name).filter(|_| kept.spools) {
                (kept.record.consumed, kept.record.kept) = (held.start, held.end);
            }
            return Ok(Found::Kept(Box::new(kept)));
        }
        Ok(inner.ended.get(&name).map_or(Found::Unknown, |code| Found::Ended(*code)))
    }

    fn remove(&self, name: FlowName, code: u64) -> Result<(), StoreError> {
        let mut inner = self.inner.lock();
        inner.flows.remove(&name);
        inner.bytes.remove(&name);
        inner.ended.insert(name, code);
        Ok(())
    }

    fn tick(&self) -> Result<Vec<Due>, StoreError> {
        Ok(Vec::new())
    }
}

impl ByteStore for MemoryStore {
    fn append(&self, name: FlowName, offset: u64, bytes: &[u8]) -> Result<u64, StoreError> {
        let mut inner = self.inner.lock();
        let (start, held) = inner.bytes.entry(name).or_insert((offset, Vec::new()));
        let end = *start + held.len() as u64;
        if offset > end {
            return Err(StoreError::Gap { asked: offset, held: ByteRange::new(*start, end) });
        }
        let known = usize::try_from(end - offset).unwrap_or(usize::MAX).min(bytes.len());
        held.extend_from_slice(&bytes[known..]);
        Ok(*start + held.len() as u64)
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn read(&self, name: FlowName, offset: u64, into: &mut [u8]) -> Result<usize, StoreError> {
        let inner = self.inner.lock();
        let held = inner.held(name).unwrap_or(ByteRange::new(offset, offset));
        if offset < held.start || offset > held.end {
            return Err(StoreError::Gap { asked: offset, held });
        }
        let Some((start, bytes)) = inner.bytes.get(&name) else { return Ok(0) };
        let rest = &bytes[(offset - start) as usize..];
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn consume(&self, name: FlowName, offset: u64) -> Result<(), StoreError> {
        let mut inner = self.inner.lock();
        if let Some((start, bytes)) = inner.bytes.get_mut(&name) {
            let gone = offset.saturating_sub(*start).min(bytes.len() as u64);
            bytes.drain(..gone as usize);
            *start += gone;
        }
        Ok(())
    }

    fn held(&self, name: FlowName) -> Option<ByteRange> {
        self.inner.lock().held(name)
    }
}
