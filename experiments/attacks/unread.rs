//! Attack: unauthorised peers at one source fill the streams of their connections with incomplete
//! operations.

use std::rc::Rc;
use std::sync::Arc;

use levada_session::{Class, Stream};

use tokio::task::JoinSet;

use super::peer::{SOURCE, connect_as_new_identity, repeat, spawn_all};
use super::victim::Target;

/// Connections from the source.
const CONNECTIONS: usize = 250;
/// Streams per connection.
const STREAMS: usize = 64;
/// Bytes sent on each stream: nearly all of its credit.
const BYTES: usize = 255_000;

/// Attacks until dropped; counts connections whose streams it has started to fill.
pub async fn attack(target: Arc<Target>) -> anyhow::Result<()> {
    let one = |_| {
        let target = target.clone();
        async move { repeat(async || fill(&target).await).await }
    };
    spawn_all(CONNECTIONS, one).await;
    Ok(())
}

/// Fills one connection, and keeps it open until the node closes it.
async fn fill(target: &Target) -> anyhow::Result<()> {
    let connection = connect_as_new_identity(target, SOURCE).await?;
    let opened = (0..STREAMS).map(|_| connection.open(Class::Bulk));
    let streams = opened.collect::<Result<Vec<Stream>, _>>()?;
    let part: Rc<[u8]> = vec![0; BYTES].into();
    let mut writing = JoinSet::new();
    for mut stream in streams {
        let part = part.clone();
        // Waits for credit; fails when the node closes the connection.
        writing.spawn_local(async move {
            let _ = stream.write(&part, false).await;
            stream
        });
    }
    target.count();
    connection.closed().await;
    Ok(())
}
