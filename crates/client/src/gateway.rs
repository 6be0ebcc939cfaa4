//! The gateway: [`discovery`] finds it on the LAN, [`identity`] asks who it is, [`known`] remembers who was met at which [`place`].

pub(crate) mod discovery;
pub(crate) mod identity;
pub(crate) mod known;
pub(crate) mod place;
