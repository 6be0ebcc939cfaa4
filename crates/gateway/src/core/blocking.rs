//! Work that waits for the disk: [`blocking`].

use std::sync::Arc;

/// Runs what waits for the disk on a thread that may wait, with the state that it needs.
pub async fn blocking<S, T>(state: &Arc<S>, work: impl FnOnce(&S) -> T + Send + 'static) -> T
where
    S: Send + Sync + 'static,
    T: Send + 'static,
{
    let state = state.clone();
    match tokio::task::spawn_blocking(move || work(&state)).await {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going down, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}
