//! What is let in, where it goes, and what an answer means: [`Policy`] and the rules that it holds. Pure: times and bytes come in.

pub mod admit;
pub mod csrf;
pub mod fields;
pub mod forwarded;
pub mod head;
pub mod owner;
pub mod paths;
mod payer;
pub mod permits;
pub mod presets;
pub mod rules;
pub mod rules_file;
pub mod session;
pub mod told;
pub mod user;

use hoop_seal::Keyring;
use rules_file::Routes;

/// What the service itself allows and knows.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The keys.
    pub keys: Keyring,
    /// The public origin, that tickets and tokens are bound to.
    pub origin: String,
    /// The longest Z.
    pub max_bytes: u64,
    /// The routes.
    pub routes: Routes,
}
