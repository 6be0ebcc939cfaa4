//! What of a flow outlives its endpoint: [`Durability`].

use super::spool::Spool;

/// What of a flow is written down before it is told.
#[derive(Clone, Default, Debug)]
pub(crate) struct Durable {
    /// What the application wants to find again with it.
    pub(crate) attachment: Vec<u8>,
    /// Somebody is writing it down.
    pub(super) is_busy: bool,
    /// Something is to be written down, if only at leisure.
    pub(super) is_stale: bool,
    /// The application writes no more, and that is not written down.
    pub(super) finishes: bool,
    /// What the application has kept beyond what is written down.
    pub(super) keeps: Option<u64>,
    /// Whether it is to be written down as quiet: see [`State::is_quiet`](super::State::is_quiet).
    pub(super) is_quiet: bool,
}

impl Durable {
    /// To be written down.
    pub(crate) fn new(attachment: Vec<u8>) -> Self {
        // A flow that begins is written down by who accepts it.
        Self { attachment, is_stale: true, is_busy: true, ..Self::default() }
    }
}

/// What of a flow outlives its endpoint.
#[derive(Default, Debug)]
pub(crate) struct Durability {
    /// What is to be written down before it is told; None: nothing ever is.
    pub(crate) durable: Option<Durable>,
    /// What goes to disk before it is acknowledged; None: nothing does.
    pub(crate) spool: Option<Spool>,
    /// It is in the store, and not here: what still comes is thrown away, and not acknowledged.
    pub(crate) is_put_away: bool,
}

impl Durability {
    /// Whether the application has said that it writes no more, and that is not written down.
    pub(super) fn finishes(&self) -> bool {
        self.durable.as_ref().is_some_and(|durable| durable.finishes)
    }

    /// Something is to be written down.
    pub(crate) const fn make_stale(&mut self) {
        if let Some(durable) = &mut self.durable {
            durable.is_stale = true;
        }
    }

    /// Nobody is writing the flow down.
    pub(crate) const fn rest(&mut self) {
        if let Some(durable) = &mut self.durable {
            durable.is_busy = false;
        }
    }

    /// Whether somebody is to write the flow down from now on.
    pub(super) fn begins(&mut self, is_quiet: bool, has_ended: bool) -> bool {
        self.durable.as_mut().is_some_and(|durable| {
            durable.is_stale |= std::mem::replace(&mut durable.is_quiet, is_quiet) != is_quiet;
            let begins = durable.is_stale && !durable.is_busy && !has_ended;
            durable.is_busy |= begins;
            begins
        })
    }

    /// What the application wants to find again.
    pub(crate) fn set_attachment(&mut self, attachment: Vec<u8>) {
        if let Some(durable) = &mut self.durable {
            durable.attachment = attachment;
            durable.is_stale = true;
        }
    }
}
