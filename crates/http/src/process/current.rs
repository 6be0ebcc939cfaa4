//! What may be exchanged while it is used: [`Current`]; and what may not: [`Fixed`].

use parking_lot::RwLock;
use std::fmt;
use std::sync::Arc;

/// A value that is read often and exchanged seldom, as when a configuration is read again. Whoever has got it keeps what he got.
#[derive(Debug)]
pub struct Current<T>(RwLock<Arc<T>>);

impl<T> Current<T> {
    /// With this value for a beginning.
    pub fn new(value: T) -> Self {
        Self(RwLock::new(Arc::new(value)))
    }

    /// The value that holds now.
    pub fn get(&self) -> Arc<T> {
        self.0.read().clone()
    }

    /// Exchanges it, for all who ask from now on.
    pub fn set(&self, value: T) {
        *self.0.write() = Arc::new(value);
    }
}

/// Settings that a running role does not exchange: their flags, and what they are.
#[derive(Clone, Debug)]
pub struct Fixed(Arc<[(&'static str, String)]>);

impl Fixed {
    /// Of these flags and values.
    pub fn new(settings: &[(&'static str, &dyn fmt::Debug)]) -> Self {
        Self(settings.iter().map(|(flag, value)| (*flag, format!("{value:?}"))).collect())
    }

    /// The flags of what would be another in `new`.
    pub fn differing(&self, new: &Self) -> Vec<&'static str> {
        self.0.iter().zip(&*new.0).filter(|(old, new)| old != new).map(|((flag, _), _)| *flag).collect()
    }
}
