//! What may be exchanged while it is used: [`Current`].

use parking_lot::RwLock;
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
