//! Serving until the end: signals, readiness, and a stop that leaves nothing behind.

use std::sync::Arc;
use std::time::Duration;

use levada_core::wire::Reason;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use crate::catalogue::{publish_elsewhere, publish_here};
use crate::config::Config;
use crate::{control, http, server};

use super::announcer;
use super::assemble::{Announcement, Assembled};
use crate::error::UpError;
use crate::node::{Ending, Node};
use crate::overrides::Overrides;

/// How long running sessions may go on after a stop was asked for.
const GRACE: Duration = Duration::from_secs(3);
/// How long their ends and the connections' farewells may take.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long the database may stay in use when the node starts again in the same process.
const RELEASE: Duration = Duration::from_secs(15);
/// How often sessions that nobody started are swept out.
const SWEEP: Duration = Duration::from_secs(30);

/// Serves until somebody asks for an end; a second signal cuts the grace short.
pub(super) async fn serve(
    assembled: Assembled,
    announce: impl Fn(&Announcement),
) -> Result<Ending, UpError> {
    let Assembled {
        node,
        listeners,
        http: http_port,
        overrides,
        mut announcement,
        announced,
        catalogue,
        publish_in,
        forwards,
    } = assembled;
    let mut signals = Signals::new()?;
    let control = control::bind(&node.home)?;
    let mut tasks = JoinSet::new();
    for listener in listeners {
        tasks.spawn(server::serve(node.clone(), listener));
    }
    if let Some(port) = http_port {
        tasks.spawn(http::serve(node.clone(), port, catalogue.clone()));
    }
    tasks.spawn(control::serve(node.clone(), control));
    tasks.spawn(sweep(node.clone()));
    tasks.spawn(server::return_memory(node.clone()));
    tasks.spawn(publish_elsewhere(node.clone(), publish_in));
    if catalogue.services {
        publish_here(&node).await;
    }
    let announcer = if announced { announcer::start(&node, &mut announcement.notes) } else { None };
    node.forwards.apply(&forwards);
    announce(&announcement);
    notify(&[NotifyState::Ready, NotifyState::Status("serving")]);
    wait(&node, &mut signals, &overrides).await;
    if node.ending() == Ending::Stop {
        // Said before a new start, systemd would wait for an end that never comes.
        notify(&[NotifyState::Stopping]);
    }
    // From here on nobody new is let in, so nobody is to be sent here.
    let goodbye = announcer.map(|announcer| tokio::spawn(announcer.goodbye()));
    node.half_open.end_all();
    let forwards = tokio::spawn({
        let node = node.clone();
        async move { node.forwards.end().await }
    });
    tokio::select! {
        () = wind_down(&node) => {}
        () = signals.again() => tracing::warn!("stopping at once"),
    }
    let _ = forwards.await;
    tasks.abort_all();
    while tasks.join_next().await.is_some() {}
    let _ = std::fs::remove_file(node.home.control_socket());
    if let Some(goodbye) = goodbye {
        let _ = goodbye.await;
    }
    released(&node).await?;
    Ok(node.ending())
}

async fn wait(node: &Arc<Node>, signals: &mut Signals, overrides: &Overrides) {
    loop {
        tokio::select! {
            () = node.stopping() => return,
            reload = signals.next() => match reload {
                Wish::Stop => node.end(Ending::Stop),
                Wish::Reload => reload_policy(node, overrides),
            },
        }
    }
}

fn reload_policy(node: &Node, overrides: &Overrides) {
    let applied = Config::load(&node.home.config_file()).and_then(|config| {
        node.reload_policy(&config, overrides)?;
        if !overrides.only_catalogue {
            node.forwards.apply(&config.forwards);
        }
        Ok(())
    });
    if let Err(error) = applied {
        tracing::error!(%error, "the configuration was not read again");
    }
}

/// Lets sessions finish for a while, ends the others, and says goodbye on every connection.
async fn wind_down(node: &Node) {
    // A node that starts again ends every session anyway.
    let grace = if node.ending() == Ending::Stop { GRACE } else { Duration::ZERO };
    until(grace, || node.live.count() == 0).await;
    node.live.end_all(Reason::Failed);
    until(FAREWELL, || node.live.count() == 0).await;
    node.connections.close(None, Reason::Failed, "the node is stopping");
    until(FAREWELL, || node.connections.count() == 0).await;
}

/// Waits until nobody else holds the node, so that its database is closed before it is opened again:
/// files must not be replaced under an open one.
async fn released(node: &Arc<Node>) -> Result<(), UpError> {
    let closed = || node.catalogue.as_ref().is_none_or(|handle| handle.is_idle());
    let alone = || Arc::strong_count(node) == 1 && Arc::strong_count(&node.store) == 1 && closed();
    let stopping = node.ending() == Ending::Stop;
    until(if stopping { FAREWELL } else { RELEASE }, alone).await;
    if stopping || alone() {
        return Ok(());
    }
    Err(UpError(
        "the node could not let go of its database; start it again with `levada up`".into(),
    ))
}

async fn until(limit: Duration, holds: impl Fn() -> bool) {
    let waited = async {
        while !holds() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let _ = tokio::time::timeout(limit, waited).await;
}

/// Sessions that were never started expire.
async fn sweep(node: Arc<Node>) {
    let mut ticks = interval(SWEEP);
    loop {
        ticks.tick().await;
        let clock = node.clock.now();
        let swept = node
            .with_store(move |store| {
                let now = store.now_at_least(clock)?.time;
                store.expire_unstarted(now)
            })
            .await;
        if let Err(error) = swept {
            tracing::error!(%error, "could not sweep out expired sessions");
        }
        let left_out = node.notices.take();
        for (source, events) in &left_out.sources {
            tracing::info!(%source, events, "more of a source without a right, not logged");
        }
        if left_out.others > 0 {
            tracing::info!(events = left_out.others, "more of other sources, not logged");
        }
    }
}

fn notify(states: &[NotifyState<'_>]) {
    // Outside systemd there is nobody to tell.
    let _ = sd_notify::notify(states);
}

enum Wish {
    Stop,
    Reload,
}

/// A node that was started in the background of a script inherits that SIGINT and SIGQUIT are ignored, and so would
/// the programs that it runs: what is handled here has its default effect there (execve(2)).
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

    async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.terminate.recv() => Wish::Stop,
            _ = self.interrupt.recv() => Wish::Stop,
            _ = self.quit.recv() => Wish::Stop,
            _ = self.reload.recv() => Wish::Reload,
        }
    }

    async fn again(&mut self) {
        while !matches!(self.next().await, Wish::Stop) {}
    }
}
