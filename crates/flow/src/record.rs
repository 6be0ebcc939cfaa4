//! What of a flow outlives a restart: [`Record`].

use crate::id::FlowName;
use crate::proof::{DeviceKey, FlowKey};
use alloc::string::String;
use hoop_units::UnixTime;

/// A flow as it is kept: which it is, whose, and how far both streams have come.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its name.
    pub name: FlowName,
    /// Its key.
    pub key: FlowKey,
    /// Whether this is the device's end.
    pub is_device: bool,
    /// The last attachment.
    pub epoch: u64,
    /// All before it is kept by the peer.
    pub acked: u64,
    /// What lies before it this end has no more.
    pub available: u64,
    /// How much is written.
    pub written: u64,
    /// Whether that is all.
    pub finished: bool,
    /// What the peer wanted.
    pub credit: u64,
    /// All before it is kept here.
    pub kept: u64,
    /// All before it is consumed here.
    pub consumed: u64,
    /// What the peer was told that it may send. To be written down before the window is made smaller.
    pub granted: u64,
    /// How long the incoming stream is, if that was told.
    pub end: Option<u64>,
    /// When the flow should be done.
    pub deadline: Option<UnixTime>,
    /// How long the outgoing stream will be.
    pub size: Option<u64>,
    /// With which code the device gives it up.
    pub reset: Option<u64>,
    /// How it ended.
    pub ended: Option<u64>,
    /// At a device that has not heard of the server yet: its key, the flow's nonce, and the service.
    pub opening: Option<(DeviceKey, [u8; 32], String)>,
}

impl Record {
    /// Of a server's flow that has carried nothing yet.
    pub const fn of_server(name: FlowName, key: FlowKey) -> Self {
        Self {
            name,
            key,
            is_device: false,
            epoch: 0,
            acked: 0,
            available: 0,
            written: 0,
            finished: false,
            credit: 0,
            kept: 0,
            consumed: 0,
            granted: 0,
            end: None,
            deadline: None,
            size: None,
            reset: None,
            ended: None,
            opening: None,
        }
    }
}
