//! Taking a lock: [`lock`].

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes it, also after a panic: whoever held it left whole values behind.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
