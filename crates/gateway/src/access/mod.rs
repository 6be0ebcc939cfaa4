//! Who may do what here: by which names the gateway is called, what pages may ask, whether a service consents to an upload, and what this gateway
//! says under its own key.

pub mod consent;
