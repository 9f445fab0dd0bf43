//! Work on the store that blocks its thread.

use levada_catalogue::store::StoreError;
use thiserror::Error;
use tokio::task::spawn_blocking;

/// Why an operation on the store failed.
#[derive(Debug, Error)]
pub enum HandleError {
    /// The store returned this error.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The process is shutting down.
    #[error("the catalogue is shutting down: try again later")]
    Closing,
}

/// Runs `work` on a thread for blocking work.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, HandleError> {
    // A store does not panic, so an error means that the runtime is shutting down and dropped the
    // work.
    Ok(spawn_blocking(work).await.map_err(|_| HandleError::Closing)??)
}
