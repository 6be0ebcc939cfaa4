//! What is typed over what is in a file: [`Over`].

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

/// Lays flags over flags, field by field. A field that is not named does not compile.
macro_rules! layers {
    ($flags:ident: $($field:ident)+) => {
        impl $crate::base::layers::Over for $flags {
            fn over(self, below: Self) -> Self {
                Self { $($field: self.$field.over(below.$field)),+ }
            }
        }
    };
}
pub(crate) use layers;
