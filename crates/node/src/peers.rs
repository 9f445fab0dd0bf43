//! The peers of a running node.

use std::sync::Arc;
use std::time::Duration;

use levada_config::Limits;
use levada_core::wire::Reason;
use levada_session::{Budget, HalfOpen};
use tokio::sync::Semaphore;

use crate::attempts::Attempts;
use crate::connections::Connections;

use crate::limiter::Limiter;
use crate::live::RunningSessions;
use crate::notices::LogLimiter;
use crate::permits::SourcePermits;
use crate::pinned_names::PinnedNames;

/// The time limit for a peer to send its operation after it has opened the stream.
pub(crate) const OPERATION_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of new successions that one source may present within [`SUCCESSIONS_PERIOD`].
const SUCCESSIONS_OF_SOURCE: usize = 32;
/// The maximum of all sources together.
const SUCCESSIONS: usize = 1000;
const SUCCESSIONS_PERIOD: Duration = Duration::from_secs(3600);
/// The exchanges of tickets of one source at a time; others wait.
const EXCHANGES: usize = 64;
/// The questions of rules that wait for a reply, of one source with peers that no list names.
const QUESTIONS_OF_SOURCE: usize = 8;
/// The maximum of all sources together: half of the questions that `capability` passes on at a
/// time, unless its configuration says otherwise.
const QUESTIONS: usize = 32;

/// The peers of a node: their handshakes, connections and runs, and the limits for each of them.
pub(crate) struct Peers {
    pub(crate) limits: Limits,
    pub(crate) half_open: HalfOpen,
    pub(crate) connections: Connections,
    pub(crate) sessions: RunningSessions,
    /// Counts wrong secrets of invitations and tickets.
    pub(crate) attempts: Attempts,
    /// Limits the exchanges of tickets that a source runs at a time.
    pub(crate) exchanges: SourcePermits,
    /// Limits the questions of rules that wait, of a source with peers that no list names.
    pub(crate) questions: SourcePermits,
    /// Limits such questions of all sources together.
    pub(crate) unnamed_questions: Arc<Semaphore>,
    /// Limits the new successions of each source.
    pub(crate) successions: Limiter,
    /// Limits the operations of peers that have not proved a right.
    pub(crate) operations: Limiter,
    /// Limits the log lines about such peers.
    pub(crate) log_limiter: LogLimiter,
    /// The names of pinned peers, for log lines.
    pub(crate) names: PinnedNames,
    /// Bounds the memory of connections of such peers.
    pub(crate) unproved: Arc<Budget>,
}

impl Peers {
    /// No peers yet.
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            limits: *limits,
            half_open: HalfOpen::default(),
            connections: Connections::default(),
            sessions: RunningSessions::default(),
            attempts: Attempts::new(limits.invitation_attempts, limits.invitation_attempts_total),
            exchanges: SourcePermits::new(EXCHANGES),
            questions: SourcePermits::new(QUESTIONS_OF_SOURCE),
            unnamed_questions: Arc::new(Semaphore::new(QUESTIONS)),
            successions: Limiter::new(SUCCESSIONS_OF_SOURCE, SUCCESSIONS, SUCCESSIONS_PERIOD),
            operations: Limiter::new(
                limits.operations,
                limits.operations_total,
                Duration::from_secs(1),
            ),
            log_limiter: LogLimiter::default(),
            names: PinnedNames::default(),
            unproved: Budget::new(
                limits.unproved_memory.saturating_mul(1 << 20),
                OPERATION_TIMEOUT,
                Reason::Busy.close_code(),
            ),
        }
    }
}
