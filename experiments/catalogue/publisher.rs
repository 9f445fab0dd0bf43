//! Publishes at a fixed rate during a measurement.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use levada_catalogue::model::{Draft, Version};
use levada_client::control::open_catalogue;
use levada_harness::pin;
use levada_home::Home;
use levada_services::catalogue::{CatalogueClient, of_bytes};
use tokio::time::{sleep, timeout};

use super::objects;
use super::server::Server;

/// The time limit for one publication.
const LIMIT: Duration = Duration::from_secs(5);

/// The publications of one run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Published {
    /// The number of published versions.
    pub done: u64,
    /// The length of the run, in seconds.
    pub seconds: f64,
}

/// Publishes `rate` versions per second, each after the one before was acknowledged, while `work`
/// runs.
///
/// # Errors
/// A publication failed.
pub fn publish_during<T>(
    server: &Server,
    rate: u32,
    work: impl FnOnce() -> T,
) -> anyhow::Result<(T, Published)> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let publishing = scope.spawn(|| {
            // Keeps the servers' core free. If pinning fails, the measurement is only noisier.
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
    let (read, write) = open_catalogue(&home).await?;
    let mut caller = CatalogueClient::new(of_bytes(read, write));
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

/// A new object: each home is used by one process of the experiment, so a counter is enough.
pub fn draft() -> anyhow::Result<Draft> {
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
