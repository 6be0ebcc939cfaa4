//! Who may do what here: by which names the gateway is called, what pages may ask, whether a service consents to an upload; and what this gateway
//! says of itself and of uploads under its own key.

pub mod consent;
pub mod cors;
pub mod host_check;
pub mod presence;
pub mod receipts;
pub mod representation;
