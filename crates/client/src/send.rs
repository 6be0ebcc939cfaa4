//! Ways to bring an upload to its end: [`transfer`] to a gateway or the service, [`draft`] before the ticket is there, [`plain`] unsealed.

pub(crate) mod draft;
pub(crate) mod plain;
pub(crate) mod transfer;
