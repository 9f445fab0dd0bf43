//! The forwards of the configuration. A running node restarts each of them when it ends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levada_client::{Client, Verdict};
use levada_core::{Backoff, format_duration};
use levada_services::forward::client::{ForwardError, Reconnector, Report, Right, Stop};
use levada_transport::Traffic;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use levada_config::ForwardSource;

/// The delay after a refusal, because the right may be granted later.
const REFUSED_DELAY: Duration = Duration::from_secs(300);
/// The time for the sessions to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// The forwards of a running node.
pub(crate) struct Forwards {
    client: Arc<Client>,
    running: Mutex<Vec<Forward>>,
    /// The connections of all forwards.
    pub(crate) traffic: Arc<Traffic>,
}

/// A running forward; dropping it stops it.
struct Forward {
    source: ForwardSource,
    state: Arc<Mutex<State>>,
    _stop: watch::Sender<()>,
    task: JoinHandle<()>,
}

/// The state of a forward.
#[derive(Clone)]
struct State {
    name: &'static str,
    listening: Vec<String>,
    /// Why it does not forward connections.
    reason: Option<String>,
}

const CONNECTING: &str = "connecting";
const OPEN: &str = "open";
const WAITING: &str = "waiting";
const REFUSED: &str = "refused";
/// The names of all states.
pub(crate) const STATES: [&str; 4] = [CONNECTING, OPEN, WAITING, REFUSED];

impl Forwards {
    /// Without any forward.
    pub(crate) fn new(client: Arc<Client>) -> Self {
        Self { client, running: Mutex::default(), traffic: Arc::default() }
    }

    /// Starts the forwards of `configured` that do not run, and stops all others. Must be called in
    /// a tokio runtime.
    pub(crate) fn apply(&self, configured: &[ForwardSource]) {
        let mut running = self.lock();
        running.retain(|one| configured.contains(&one.source));
        for source in configured {
            if !running.iter().any(|one| one.source == *source) {
                running.push(Forward::start(self.client.clone(), source.clone(), &self.traffic));
            }
        }
        // `status` lists them in the order of the configuration.
        running.sort_by_key(|one| configured.iter().position(|source| *source == one.source));
    }

    /// Their description for `status`.
    pub(crate) fn describe(&self) -> Vec<Value> {
        self.lock().iter().map(Forward::describe).collect()
    }

    /// The number of forwards in a state.
    pub(crate) fn count(&self, state: &str) -> usize {
        self.lock().iter().filter(|one| one.state_name() == state).count()
    }

    /// Stops all of them, and waits until their sessions have closed.
    pub(crate) async fn end(&self) {
        let running = std::mem::take(&mut *self.lock());
        let tasks: Vec<_> = running.into_iter().map(|one| one.task).collect();
        for mut task in tasks {
            if timeout(CLOSE_TIMEOUT, &mut task).await.is_err() {
                task.abort();
                let _ = task.await;
            }
        }
        self.client.close();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Forward>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Forward {
    fn start(client: Arc<Client>, source: ForwardSource, traffic: &Arc<Traffic>) -> Self {
        let state = State { name: CONNECTING, listening: Vec::new(), reason: None };
        let state = Arc::new(Mutex::new(state));
        let (_stop, stop) = Stop::new();
        let status = Status { at: source.at(), state: state.clone(), traffic: traffic.clone() };
        let task = tokio::spawn(run(client, source.clone(), Arc::new(status), stop));
        Self { source, state, _stop, task }
    }

    fn state_name(&self) -> &'static str {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).name
    }

    fn describe(&self) -> Value {
        let State { name, listening, reason } =
            self.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        json!({
            "service": self.source.at(),
            "target": self.source.target(),
            "listening": listening,
            "state": name,
            "text": reason,
        })
    }
}

/// Runs a forward, and restarts it when it ends, until it is stopped.
async fn run(client: Arc<Client>, source: ForwardSource, status: Arc<Status>, mut stop: Stop) {
    let mut backoff = Backoff::default();
    loop {
        status.set(CONNECTING, None);
        let connecting = connect(&client, &source, &status, stop.clone());
        let ended = tokio::select! {
            () = stop.stopped() => return,
            reconnector = connecting => match reconnector {
                // When it is stopped, it closes its session before it returns.
                Ok(reconnector) => reconnector.run().await,
                Err(error) => Err(error),
            },
        };
        let was_open = status.was_open();
        let (state, reason) = match &ended {
            Ok(0) => return,
            Ok(code) => (WAITING, format!("it ended with {code}")),
            Err(error) if error.is_refusal() => (REFUSED, error.to_string()),
            Err(error) => (WAITING, error.to_string()),
        };
        if was_open {
            backoff.reset();
        }
        let delay = if state == REFUSED { REFUSED_DELAY } else { backoff.pause() };
        status.set(state, Some(&reason));
        let delay_text = format_duration(delay);
        tracing::warn!(forward = %status.at, %reason, "a forward ended; trying again in {delay_text}");
        tokio::select! {
            () = stop.stopped() => return,
            () = sleep(delay) => {}
        }
    }
}

async fn connect(
    client: &Arc<Client>,
    source: &ForwardSource,
    status: &Arc<Status>,
    stop: Stop,
) -> Result<Reconnector, ForwardError> {
    let target = client.identify(&source.node, |_| Verdict::Unasked).await;
    let target = target.map_err(ForwardError::from)?;
    let right = Right::Request { target, service: source.service.clone() };
    Reconnector::new(client.clone(), right, source.plan.clone(), status.clone(), stop).await
}

/// Updates the state of a forward.
struct Status {
    at: String,
    state: Arc<Mutex<State>>,
    traffic: Arc<Traffic>,
}

impl Status {
    fn set(&self, name: &'static str, reason: Option<&str>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.name = name;
        state.reason = reason.map(str::to_owned);
        if name != OPEN && name != WAITING {
            state.listening.clear();
        }
    }

    fn was_open(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).name != CONNECTING
    }
}

impl Report for Status {
    fn listening(&self, at: &str) -> Result<(), ForwardError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.listening = at.lines().map(str::to_owned).collect();
        Ok(())
    }

    fn note(&self, line: &str) {
        tracing::info!(forward = %self.at, "{line}");
    }

    fn carries(&self, why_not: Option<&str>) {
        self.set(if why_not.is_none() { OPEN } else { WAITING }, why_not);
    }

    fn traffic(&self) -> Option<&Arc<Traffic>> {
        Some(&self.traffic)
    }
}
