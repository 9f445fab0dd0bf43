//! Waits for the node of this home to start, to take over a restore, or to end.

use crate::failure::Failure;
use levada_client::control::{self, Request};
use levada_home::{Home, HomeError, Lock};
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const STEP: Duration = Duration::from_millis(20);

/// Longer than a node takes to restart, also when it moves many packages of a restored catalogue.
const RESTART_TIMEOUT: Duration = Duration::from_secs(600);

/// Waits until a node of `home` answers as `identity`.
///
/// # Errors
/// [`Failure`] 120 if it ended or does not come back.
pub async fn until_ready(home: &Home, identity: &str) -> Result<(), Failure> {
    let end = Instant::now() + RESTART_TIMEOUT;
    loop {
        let status = control::call(home, &Request::Status).await;
        if status.is_ok_and(|status| status["identity"] == identity) {
            return Ok(());
        }
        step(home, end).await?;
    }
}

/// Waits until the node of `home` has moved the restored `folder` into place.
///
/// # Errors
/// [`Failure`] 120 if the node ended, or did not do so in time.
pub async fn until_taken(home: &Home, folder: &Path) -> Result<(), Failure> {
    let end = Instant::now() + RESTART_TIMEOUT;
    while folder.exists() {
        step(home, end).await?;
    }
    Ok(())
}

async fn step(home: &Home, end: Instant) -> Result<(), Failure> {
    // The lock is free, so the node has ended.
    if home.lock().is_ok() {
        return Err(Failure::local("the node ended; see its log, and start it with `levada up`"));
    }
    if Instant::now() > end {
        return Err(Failure::local("the node does not answer; see its log"));
    }
    sleep(STEP).await;
    Ok(())
}

/// Waits until no process holds the lock of `home`, and takes it.
///
/// # Errors
/// [`HomeError::Locked`] if a process still holds it after `limit`.
pub async fn until_free(home: &Home, limit: Duration) -> Result<Lock, HomeError> {
    let end = Instant::now() + limit;
    loop {
        match home.lock() {
            Err(HomeError::Locked { .. }) if Instant::now() < end => sleep(STEP).await,
            other => return other,
        }
    }
}
