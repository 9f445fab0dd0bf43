//! Publishes, at even times, while something else is measured.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use levada_catalogue::model::{Draft, Version};
use levada_harness::pin;
use levada_node::control::converse;
use levada_node::home::Home;
use levada_services::catalogue::{Caller, of_bytes};
use tokio::time::{sleep, timeout};

use super::objects;
use super::server::Server;

/// How long one publication may take.
const LIMIT: Duration = Duration::from_secs(5);

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Published {
    /// Versions that were published.
    pub done: u64,
    /// For how long, in seconds.
    pub seconds: f64,
}

/// Publishes `rate` versions a second, each when the one before is acknowledged, while `work` runs.
///
/// # Errors
/// Something was not published.
pub fn meanwhile<T>(
    server: &Server,
    rate: u32,
    work: impl FnOnce() -> T,
) -> anyhow::Result<(T, Published)> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let publishing = scope.spawn(|| {
            // The core of servers is theirs alone. If that cannot be, it is only noisier.
            let _ = pin(super::GENERATOR);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(publish(server, rate, &stop))
        });
        let done = work();
        stop.store(true, Ordering::Relaxed);
        let published = publishing.join().map_err(|_| anyhow::anyhow!("the publisher panicked"))?;
        Ok((done, published?))
    })
}

async fn publish(server: &Server, rate: u32, stop: &AtomicBool) -> anyhow::Result<Published> {
    let home = Home::at(server.folder())?;
    let (read, write) = converse(&home).await?;
    let mut caller = Caller::new(of_bytes(read, write));
    let begun = Instant::now();
    let mut published = Published::default();
    let mut due = begun;
    while !stop.load(Ordering::Relaxed) {
        let draft = draft()?;
        let mut nothing = io::empty();
        let publishing = caller.publish(&draft, &mut nothing, |_| {});
        timeout(LIMIT, publishing).await.context("a publication took too long")??;
        published.done += 1;
        due += Duration::from_secs(1) / rate;
        sleep(due.saturating_duration_since(Instant::now())).await;
    }
    published.seconds = begun.elapsed().as_secs_f64();
    caller.finish().await;
    Ok(published)
}

/// One that was never published before: a home is used by one process of the experiment.
fn draft() -> anyhow::Result<Draft> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("Published{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    Ok(Draft {
        key: format!("dataschema/{name}").parse()?,
        version: Version::new(1, 0, 0),
        descriptor: objects::description(0).into(),
        package: None,
        signatures: Vec::new(),
    })
}
