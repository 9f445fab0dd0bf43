//! Forwards of the configuration: a node keeps each up for as long as it runs, whatever happens to the other node.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levada_client::{Client, Verdict};
use levada_core::Backoff;
use levada_services::forward::client::{ForwardError, Reconnector, Report, Right, Stop};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::config::ForwardSource;

/// The pause after a refusal: the right may be given later.
const REFUSED_PAUSE: Duration = Duration::from_secs(300);
/// How long the sessions may take to end in good order.
const FAREWELL: Duration = Duration::from_secs(3);

/// The forwards of a running node.
pub(crate) struct Forwards {
    client: Arc<Client>,
    kept: Mutex<Vec<Kept>>,
}

/// A forward that is kept up; dropped, it ends.
struct Kept {
    source: ForwardSource,
    state: Arc<Mutex<State>>,
    _stop: watch::Sender<()>,
    task: JoinHandle<()>,
}

/// How a forward is.
#[derive(Clone)]
struct State {
    is: &'static str,
    listening: Vec<String>,
    /// Why it does not carry connections.
    why: Option<String>,
}

const CONNECTING: &str = "connecting";
const OPEN: &str = "open";
const WAITING: &str = "waiting";
const REFUSED: &str = "refused";

impl Forwards {
    /// None yet.
    pub(crate) fn new(client: Client) -> Self {
        Self { client: Arc::new(client), kept: Mutex::default() }
    }

    /// Keeps up `wanted`, and nothing else. To be called within a tokio runtime.
    pub(crate) fn apply(&self, wanted: &[ForwardSource]) {
        let mut kept = self.lock();
        kept.retain(|one| wanted.contains(&one.source));
        for source in wanted {
            if !kept.iter().any(|one| one.source == *source) {
                kept.push(Kept::start(self.client.clone(), source.clone()));
            }
        }
        // In the order of the configuration.
        kept.sort_by_key(|one| wanted.iter().position(|source| *source == one.source));
    }

    /// What `status` says of them.
    pub(crate) fn describe(&self) -> Vec<Value> {
        self.lock().iter().map(Kept::describe).collect()
    }

    /// Ends all of them.
    pub(crate) async fn end(&self) {
        let kept = std::mem::take(&mut *self.lock());
        let tasks: Vec<_> = kept.into_iter().map(|one| one.task).collect();
        for mut task in tasks {
            if timeout(FAREWELL, &mut task).await.is_err() {
                task.abort();
                let _ = task.await;
            }
        }
        self.client.close();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn start(client: Arc<Client>, source: ForwardSource) -> Self {
        let state = State { is: CONNECTING, listening: Vec::new(), why: None };
        let state = Arc::new(Mutex::new(state));
        let (_stop, stop) = Stop::new();
        let told = Arc::new(Told { at: source.at(), state: state.clone() });
        let task = tokio::spawn(keep(client, source.clone(), told, stop));
        Self { source, state, _stop, task }
    }

    fn describe(&self) -> Value {
        let State { is, listening, why } =
            self.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        json!({
            "service": self.source.at(),
            "target": self.source.target(),
            "listening": listening,
            "state": is,
            "text": why,
        })
    }
}

/// Starts a forward, and anew whenever it has ended, until it is stopped.
async fn keep(client: Arc<Client>, source: ForwardSource, told: Arc<Told>, mut stop: Stop) {
    let mut backoff = Backoff::default();
    loop {
        told.set(CONNECTING, None);
        let beginning = begin(&client, &source, &told, stop.clone());
        let kept = tokio::select! {
            () = stop.stopped() => return,
            reconnector = beginning => match reconnector {
                // It ends in good order when it is stopped.
                Ok(reconnector) => reconnector.run().await,
                Err(error) => Err(error),
            },
        };
        let was_open = told.was_open();
        let (state, why) = match &kept {
            Ok(0) => return,
            Ok(code) => (WAITING, format!("it ended with {code}")),
            Err(error) if error.is_refusal() => (REFUSED, error.to_string()),
            Err(error) => (WAITING, error.to_string()),
        };
        if was_open {
            backoff.reset();
        }
        let pause = if state == REFUSED { REFUSED_PAUSE } else { backoff.pause() };
        told.set(state, Some(&why));
        tracing::warn!(forward = %told.at, %why, "a forward is tried again in {} s", pause.as_secs());
        tokio::select! {
            () = stop.stopped() => return,
            () = sleep(pause) => {}
        }
    }
}

async fn begin(
    client: &Arc<Client>,
    source: &ForwardSource,
    told: &Arc<Told>,
    stop: Stop,
) -> Result<Reconnector, ForwardError> {
    let target = client.identify(&source.node, |_| Verdict::Unasked).await;
    let target = target.map_err(ForwardError::from)?;
    let right = Right::Request { target, service: source.service.clone() };
    Reconnector::new(client.clone(), right, source.plan.clone(), told.clone(), stop).await
}

/// Where the state of a forward is kept up to date.
struct Told {
    at: String,
    state: Arc<Mutex<State>>,
}

impl Told {
    fn set(&self, is: &'static str, why: Option<&str>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is = is;
        state.why = why.map(str::to_owned);
        if is != OPEN && is != WAITING {
            state.listening.clear();
        }
    }

    fn was_open(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is != CONNECTING
    }
}

impl Report for Told {
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
}
