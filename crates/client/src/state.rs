//! What the device keeps of its uploads: [`store`] has their records, [`resume_state`] what a later process needs to go on.

pub(crate) mod resume_state;
pub(crate) mod store;
