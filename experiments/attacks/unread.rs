//! Peers without any right, all from one source, fill the streams of their connections with operations that do not end.

use std::rc::Rc;
use std::sync::Arc;

use levada_session::{Class, Stream};

use tokio::task::JoinSet;

use super::peer::{SOURCE, forever, meet, together};
use super::victim::Target;

/// Connections of the source.
const CONNECTIONS: usize = 250;
/// Streams of a connection.
const STREAMS: usize = 64;
/// Bytes sent on each: nearly all the credit that a stream has.
const BYTES: usize = 255_000;

/// Attacks until it is dropped; counts connections whose streams it has begun to fill.
pub async fn attack(target: Arc<Target>) -> anyhow::Result<()> {
    let one = |_| {
        let target = target.clone();
        async move { forever(async || fill(&target).await).await }
    };
    together(CONNECTIONS, one).await;
    Ok(())
}

/// Fills one connection, and holds it until the node ends it.
async fn fill(target: &Target) -> anyhow::Result<()> {
    let connection = meet(target, SOURCE).await?;
    let opened = (0..STREAMS).map(|_| connection.open(Class::Bulk));
    let streams = opened.collect::<Result<Vec<Stream>, _>>()?;
    let part: Rc<[u8]> = vec![0; BYTES].into();
    let mut writing = JoinSet::new();
    for mut stream in streams {
        let part = part.clone();
        // Waits where there is no credit; ends with an error when the node gives up.
        writing.spawn_local(async move {
            let _ = stream.write(&part, false).await;
            stream
        });
    }
    target.count();
    connection.closed().await;
    Ok(())
}
