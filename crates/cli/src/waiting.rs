//! Waiting for the node of this home to do what it was asked to.

use crate::failure::Failure;
use levada_node::control::{self, Request};
use levada_node::home::{Home, HomeError, Lock};
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const STEP: Duration = Duration::from_millis(20);

/// Longer than a node takes to end and to start again, also with many packages of a catalogue to put in their places.
const PATIENCE: Duration = Duration::from_secs(600);

/// Waits until a node of `home` answers as `identity`.
///
/// # Errors
/// [`Failure`] 120 if it ended or does not come back.
pub async fn until_ready(home: &Home, identity: &str) -> Result<(), Failure> {
    let end = Instant::now() + PATIENCE;
    loop {
        let status = control::call(home, &Request::Status).await;
        if status.is_ok_and(|status| status["identity"] == identity) {
            return Ok(());
        }
        step(home, end).await?;
    }
}

/// Waits until the node of `home` has taken the restored `folder` away to its place.
///
/// # Errors
/// [`Failure`] 120 if it ended, or did nothing.
pub async fn until_taken(home: &Home, folder: &Path) -> Result<(), Failure> {
    let end = Instant::now() + PATIENCE;
    while folder.exists() {
        step(home, end).await?;
    }
    Ok(())
}

async fn step(home: &Home, end: Instant) -> Result<(), Failure> {
    // Whoever can take the lock is alone: the node has ended.
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
/// [`HomeError::Locked`] if a process still holds it after `patience`.
pub async fn until_free(home: &Home, patience: Duration) -> Result<Lock, HomeError> {
    let end = Instant::now() + patience;
    loop {
        match home.lock() {
            Err(HomeError::Locked { .. }) if Instant::now() < end => sleep(STEP).await,
            other => return other,
        }
    }
}
