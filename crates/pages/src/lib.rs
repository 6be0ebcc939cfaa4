//! What the pages of gateway and service share.
//!
//! Pages are `maud` templates: text and values are escaped by construction, and what others wrote passes [`shown`] too.
//!
//! - [`shown`]: what others wrote, without the characters that would deceive a reader.
//! - [`answer`]: a page as an answer.
//! - [`asset`]: a style or script of ours as an answer.

mod answer;
mod asset;
mod shown;

pub use answer::answer;
pub use asset::asset;
pub use shown::shown;
