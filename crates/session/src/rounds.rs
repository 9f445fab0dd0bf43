//! Rounds: a driver moves bytes in all directions, and again, until nothing moves.

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::pin;
use std::task::{Context, Poll};

/// Calls `round` up to `most` times, and then yields to other tasks. A round that has moved
/// something continues; any other breaks with the result of this poll.
pub fn poll_rounds<T>(
    cx: &mut Context<'_>,
    most: usize,
    mut round: impl FnMut(&mut Context<'_>) -> ControlFlow<Poll<T>>,
) -> Poll<T> {
    for _ in 0..most {
        if let ControlFlow::Break(result) = round(cx) {
            return result;
        }
    }
    yield_now(cx)
}

/// Lets all other tasks run before this one is polled again.
pub fn yield_now<T>(cx: &mut Context<'_>) -> Poll<T> {
    // It yields through tokio: a task that only wakes itself may run again before all others.
    let _ = pin!(tokio::task::yield_now()).poll(cx);
    Poll::Pending
}
