//! What the pages of gateway and service share.
//!
//! Pages are `maud` templates: text and values are escaped by construction, and what others wrote passes [`shown`] too.
//!
//! - [`shown`]: what others wrote, without the characters that would deceive a reader.
//! - [`Language`]: the reader's; numbers, sizes and times in it.
//! - [`words`]: the catalogue of all that the pages say.
//! - [`answer`]: a page as an answer.
//! - [`asset`]: a style or script of ours as an answer.

mod answer;
mod asset;
mod language;
mod numbers;
mod shown;
pub mod words;

pub use answer::answer;
pub use asset::asset;
pub use language::Language;
pub use shown::shown;
