//! Which server leads.

use super::engine::{Engine, SERVERS};

/// The server that leads the log of a catalogue, and whether the others have all of it, and of the
/// packages. `None` while there is none.
pub fn leader(engine: &Engine, name: &str) -> Option<(usize, bool)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let name = name.to_ascii_uppercase();
    let [log, parts] = runtime.block_on(async {
        let client = async_nats::connect(engine.options(&name).servers).await.ok()?;
        let context = async_nats::jetstream::new(client);
        let of = async |stream: &str| {
            let stream = context.get_stream(format!("LEVADA_{name}_{stream}")).await.ok()?;
            stream.cached_info().cluster.clone()
        };
        Some([of("LOG").await?, of("PARTS").await?])
    })?;
    let number = log.leader?.strip_prefix('n')?.parse().ok()?;
    let replicas = [&log.replicas[..], &parts.replicas[..]].concat();
    let is_current = replicas.iter().all(|replica| replica.current);
    Some((number, is_current && replicas.len() == 2 * (SERVERS - 1)))
}
