//! The catalogue: all that the pages say, in each language. Each text stands beside its translation, and one without does not compile.
//!
//! None of it is markup; all of it is escaped like what others wrote.

/// A text.
type Text = &'static str;

/// A few words, and a sentence on what they mean for whoever reads it, which may be empty.
#[derive(Debug)]
pub struct Told {
    /// Two or three words.
    pub label: Text,
    /// The sentence.
    pub meaning: Text,
}

const fn told(label: Text, meaning: Text) -> Told {
    Told { label, meaning }
}

/// A table of names, types, English and French.
macro_rules! words {
    ($(#[$about:meta])* $words:ident: $($(#[$doc:meta])* $name:ident: $kind:ty = $english:expr, $french:expr;)+) => {
        $(#[$about])*
        #[allow(missing_docs, reason = "each text says what it is")]
        #[derive(Debug)]
        pub struct $words { $($(#[$doc])* pub $name: $kind,)+ }

        impl $words {
            /// All of it in a language.
            pub const fn of(language: crate::language::Language) -> &'static Self {
                static ENGLISH: $words = $words { $($name: $english),+ };
                static FRENCH: $words = $words { $($name: $french),+ };
                match language {
                    crate::language::Language::English => &ENGLISH,
                    crate::language::Language::French => &FRENCH,
                }
            }
        }
    };
}

mod bridge;
mod monitor;
mod reasons;
mod service;

pub use bridge::BridgeWords;
pub use monitor::MonitorWords;
pub use reasons::reason;
pub use service::{ServiceWords, Unit};
