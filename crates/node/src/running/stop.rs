//! Serves until the node stops: signals, readiness, and an orderly shutdown.

use std::sync::Arc;
use std::time::Duration;

use levada_core::wire::Reason;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use crate::catalogue::{publish_elsewhere, publish_here};
use crate::{control, drain, groups, http, listen, provider, retention, server, shares};
use levada_config::Config;

use super::announcer;
use super::assemble::{Announcement, Assembled};
use super::sockets::Sockets;
use crate::error::UpError;
use crate::node::{Ending, Node};
use crate::overrides::Overrides;

/// The time for which sessions may continue after the stop was requested.
const GRACE_PERIOD: Duration = Duration::from_secs(3);
/// The time for sessions to end, and again for connections to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The time for the databases to be closed before the node starts again in the same process.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(15);
/// The interval of [`maintain`].
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(30);

/// Serves until the node is stopped. A second signal skips the grace period.
pub(super) async fn serve(
    assembled: Assembled,
    announce: impl Fn(&Announcement),
) -> Result<Ending, UpError> {
    let Assembled {
        node,
        sockets,
        overrides,
        started_with,
        mut announcement,
        announced,
        catalogue,
        publish_in,
        forwards,
    } = assembled;
    let Sockets { listeners, http: http_port, middlebox: middlebox_listener } = sockets;
    let mut signals = Signals::new()?;
    let control = control::bind(&node.home)?;
    let mut tasks = JoinSet::new();
    if node.network.udp {
        let handshakes = node.peers.limits.half_open;
        for listener in listen::bind_udp(&node.network.listening, handshakes).await? {
            tasks.spawn(server::serve_udp(node.clone(), listener));
        }
    }
    for listener in listeners {
        tasks.spawn(server::serve(node.clone(), listener));
    }
    if let Some(port) = http_port {
        tasks.spawn(http::serve(node.clone(), port, catalogue.clone()));
    }
    if let Some(listener) = middlebox_listener {
        tasks.spawn(server::serve_middlebox(node.clone(), listener));
    }
    tasks.spawn(control::serve(node.clone(), control));
    tasks.spawn(maintain(node.clone()));
    tasks.spawn(retention::serve(node.clone()));
    tasks.spawn(drain::serve(node.clone()));
    tasks.spawn(server::return_memory(node.clone()));
    tasks.spawn(shares::serve_stored(node.clone()));
    tasks.spawn(provider::serve(node.clone()));
    tasks.spawn(groups::follow(node.clone()));
    tasks.spawn(publish_elsewhere(node.clone(), publish_in));
    if catalogue.services {
        publish_here(&node).await;
    }
    let announcer = if announced { announcer::start(&node, &mut announcement.notes) } else { None };
    node.forwards.apply(&forwards);
    announce(&announcement);
    log_start(&announcement);
    notify(&[NotifyState::Ready, NotifyState::Status("serving")]);
    let reason = wait_for_end(&node, &mut signals, (&overrides, &started_with)).await;
    tracing::info!(identity = %node.identity(), reason, "the node is stopping");
    if node.ending() == Ending::Stop {
        // Before a restart in the same process this is omitted: systemd would wait for the process
        // to end.
        notify(&[NotifyState::Stopping]);
    }
    // New connections are refused from here on, so the announcement is withdrawn.
    let withdrawal = announcer.map(|announcer| tokio::spawn(announcer.goodbye()));
    node.peers.half_open.end_all();
    let forwards = tokio::spawn({
        let node = node.clone();
        async move { node.forwards.end().await }
    });
    tokio::select! {
        () = shut_down(&node) => {}
        () = signals.stop() => tracing::warn!("second signal: stopping without the grace period"),
    }
    let _ = forwards.await;
    tasks.abort_all();
    while tasks.join_next().await.is_some() {}
    let _ = std::fs::remove_file(node.home.control_socket());
    if let Some(withdrawal) = withdrawal {
        let _ = withdrawal.await;
    }
    release(&node).await?;
    Ok(node.ending())
}

/// Logs the start, so that the log alone shows which node served what since when.
fn log_start(announcement: &Announcement) {
    let Announcement { name, identity, addresses, services, .. } = announcement;
    let addresses = addresses.join(", ");
    let services = services.join(", ");
    tracing::info!(name, %identity, addresses, services, "the node has started");
}

/// Serves signals until the node ends, and returns the reason of the end for the log.
async fn wait_for_end(
    node: &Arc<Node>,
    signals: &mut Signals,
    started: (&Overrides, &toml::Table),
) -> &'static str {
    let mut signalled = None;
    loop {
        tokio::select! {
            () = node.stopping() => return signalled.unwrap_or_else(|| reason(node)),
            action = signals.next() => match action {
                Action::Stop(name) => {
                    signalled = Some(name);
                    node.end(Ending::Stop);
                }
                Action::Reload => reload_policy(node, started).await,
            },
        }
    }
}

/// The reason of an end that a request on the control socket caused.
fn reason(node: &Node) -> &'static str {
    match node.ending() {
        Ending::Stop if node.drains_for().is_some() => "levada stop --drain",
        Ending::Stop => "levada stop",
        Ending::Restart => "restart with a new key",
        Ending::Restore(_) => "restart with a restored backup",
    }
}

async fn reload_policy(node: &Arc<Node>, (overrides, started_with): (&Overrides, &toml::Table)) {
    let apply = async {
        let config = Config::load(&node.home.config_file()).map_err(UpError::of)?;
        node.reload_policy(&config, overrides).await?;
        if !overrides.only_catalogue {
            node.forwards.apply(&config.forwards);
        }
        let changed = config.changed_since(started_with).join(", ");
        if !changed.is_empty() {
            tracing::warn!(
                keys = changed,
                "other keys have changed, and take effect at the next start"
            );
        }
        Ok::<_, UpError>(())
    };
    if let Err(error) = apply.await {
        tracing::error!(%error, "could not read the configuration again; the old one stays in effect");
    }
}

/// Waits for sessions to finish, ends the others after the grace period, closes every connection,
/// and stores the time: what has expired stays so, should the clock go back while the node is off.
pub(super) async fn shut_down(node: &Node) {
    // A restart after a rotation or a restore terminates all sessions, so there is no grace period.
    let grace = if node.ending() == Ending::Stop { GRACE_PERIOD } else { Duration::ZERO };
    wait_until(grace, || node.all_running() == 0).await;
    node.peers.sessions.end_all(Reason::Failed);
    wait_until(CLOSE_TIMEOUT, || node.peers.sessions.count() == 0).await;
    node.peers.connections.close(None, Reason::Failed, "the node is stopping");
    wait_until(CLOSE_TIMEOUT, || node.peers.connections.count() == 0).await;
    let now = node.now();
    if let Err(error) = node.with_store(move |store| store.store_time(now)).await {
        tracing::error!(%error, "could not store the time");
    }
}

/// Waits until no other task uses the node, so that its databases are closed: a restart may replace
/// their files.
async fn release(node: &Arc<Node>) -> Result<(), UpError> {
    let idle =
        || node.client.is_idle() && node.catalogue.as_ref().is_none_or(|handle| handle.is_idle());
    let unused =
        || Arc::strong_count(node) == 1 && Arc::strong_count(&node.rights.store) == 1 && idle();
    let stopping = node.ending() == Ending::Stop;
    wait_until(if stopping { CLOSE_TIMEOUT } else { RELEASE_TIMEOUT }, unused).await;
    if stopping || unused() {
        return Ok(());
    }
    Err(UpError(format!(
        "the databases are still in use after {} s; start the node again with `levada up`",
        RELEASE_TIMEOUT.as_secs()
    )))
}

/// Waits until `condition` is true, at most for `limit`.
async fn wait_until(limit: Duration, condition: impl Fn() -> bool) {
    let waited = async {
        while !condition() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let _ = tokio::time::timeout(limit, waited).await;
}

/// Periodically expires sessions that were not started, and logs how many log lines were
/// suppressed. Does not return.
async fn maintain(node: Arc<Node>) {
    let mut ticks = interval(MAINTENANCE_INTERVAL);
    loop {
        ticks.tick().await;
        let clock = node.clock.now();
        let peers = node.clone();
        let expired = node
            .with_store(move |store| {
                peers.peers.names.read(peers.client.known());
                let now = store.now_at_least(clock)?.time;
                store.expire_unstarted(now)
            })
            .await;
        if let Err(error) = expired {
            tracing::error!(%error, "could not expire sessions");
        }
        let suppressed = node.peers.log_limiter.take();
        for (source, events) in &suppressed.sources {
            tracing::info!(%source, events, "suppressed log lines about a source without a right");
        }
        if suppressed.others > 0 {
            tracing::info!(events = suppressed.others, "suppressed log lines about other sources");
        }
    }
}

fn notify(states: &[NotifyState<'_>]) {
    // Without systemd this does nothing.
    let _ = sd_notify::notify(states);
}

/// What a signal requests.
enum Action {
    /// A stop, with the name of the signal.
    Stop(&'static str),
    Reload,
}

/// The handled signals. A node in the background of a script inherits SIGINT and SIGQUIT as
/// ignored, and its programs would inherit them, too. Signals that the node handles have their
/// default action in its programs (execve(2)).
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    reload: Signal,
}

impl Signals {
    fn new() -> Result<Self, UpError> {
        let listen = |kind| signal(kind).map_err(UpError::of);
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            quit: listen(SignalKind::quit())?,
            reload: listen(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Action {
        tokio::select! {
            _ = self.terminate.recv() => Action::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Action::Stop("SIGINT"),
            _ = self.quit.recv() => Action::Stop("SIGQUIT"),
            _ = self.reload.recv() => Action::Reload,
        }
    }

    /// Waits for a signal that stops the node.
    async fn stop(&mut self) {
        while !matches!(self.next().await, Action::Stop(_)) {}
    }
}
