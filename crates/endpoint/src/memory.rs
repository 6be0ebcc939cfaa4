//! What of a flow is in memory: how much may be ([`budget`], [`window`]), where it lies ([`buffer`]), and how it is taken out of what comes ([`decoder`]).

pub(crate) mod budget;
pub(crate) mod buffer;
pub(crate) mod decoder;
pub(crate) mod window;
