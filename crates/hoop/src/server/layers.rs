//! What is typed over what is in a file: [`Over`], [`with_file`].

use crate::base::exit::Failure;
use crate::server::powers::Powers;
use crate::server::read_file;
use serde::de::DeserializeOwned;
use std::path::Path;

/// Two tellings of the same settings become one.
pub trait Over {
    /// What this says, and where it says nothing, what `below` says. Lists add up.
    #[must_use]
    fn over(self, below: Self) -> Self;
}

impl<T> Over for Option<T> {
    fn over(self, below: Self) -> Self {
        self.or(below)
    }
}

impl<T> Over for Vec<T> {
    fn over(self, mut below: Self) -> Self {
        below.extend(self);
        below
    }
}

impl Over for bool {
    fn over(self, below: Self) -> Self {
        self || below
    }
}

/// The flags of a role that has a configuration file.
pub trait RoleFlags: Over + Clone + Default + DeserializeOwned {
    /// Its configuration file.
    fn file(&self) -> Option<&Path>;

    /// What the process may do.
    fn powers(&self) -> Powers;
}

/// What was typed, over what is in its configuration file.
pub fn with_file<F: RoleFlags>(typed: &F) -> Result<F, Failure> {
    Ok(typed.clone().over(read_file(typed.file())?))
}

/// Lays a role's flags over others, field by field. A field that is not named does not compile.
macro_rules! layers {
    ($flags:ident: $($field:ident)+) => {
        impl $crate::server::layers::Over for $flags {
            fn over(self, below: Self) -> Self {
                Self { $($field: self.$field.over(below.$field)),+ }
            }
        }

        impl $crate::server::layers::RoleFlags for $flags {
            fn file(&self) -> Option<&std::path::Path> {
                self.config.as_deref()
            }

            fn powers(&self) -> $crate::server::powers::Powers {
                $crate::server::powers::Powers::new(self.user.clone(), self.no_landlock)
            }
        }
    };
}
pub(crate) use layers;
