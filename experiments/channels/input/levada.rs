//! One connection of the channel: an interactive stream for events, a bulk stream beside it.

use std::future::pending;
use std::net::TcpStream;

use anyhow::Context;
use levada_session::{Class, Connection, Options, Stream, accept, connect};
use levada_transport::Tcp;

use super::BULK_MESSAGE;
use super::events::{Events, LENGTH};
use crate::channels::ends::{Meter, block_on};
use crate::channels::levada::{Keys, PART};

/// Sends events, and as much bulk as the link takes if `bulk`, until stopped.
pub fn send(
    keys: &Keys,
    socket: TcpStream,
    bulk: bool,
    events: &Events,
    meter: &Meter,
) -> anyhow::Result<()> {
    block_on(async {
        let link = Box::new(Tcp::new(tokio::net::TcpStream::from_std(socket)?)?);
        let connection =
            connect(link, &keys.client, Some(keys.identity), Options::default()).await?;
        let mut stream = connection.open(Class::Interactive)?;
        // The peer learns of a stream by its first message: that of events is to be the first.
        stream.send(&[0; LENGTH]).await?;
        meter.start();
        let send = events.send_all(meter, async |event| Ok(stream.send(event).await?));
        tokio::try_join!(send, fill(&connection, bulk, meter))?;
        stream.finish().await?;
        // The peer leaves when it has all events. Nobody may hang up before: a socket that is closed while
        // something unread is in it throws away what it still had to send.
        let _ = stream.receive(0).await;
        Ok(())
    })
}

async fn fill(connection: &Connection, bulk: bool, meter: &Meter) -> anyhow::Result<()> {
    if bulk {
        let mut stream = connection.open(Class::Bulk)?;
        while !meter.stopped() {
            stream.send(&[7; BULK_MESSAGE]).await?;
        }
    }
    Ok(())
}

/// Receives events until there are no more, and whatever bulk comes meanwhile.
pub fn receive(
    keys: &Keys,
    socket: TcpStream,
    events: &Events,
    meter: &Meter,
) -> anyhow::Result<()> {
    block_on(async {
        let link = Box::new(Tcp::new(tokio::net::TcpStream::from_std(socket)?)?);
        let connection = accept(link, &keys.server, Options::default()).await?;
        let mut stream = connection.accept().await.context("no stream")?;
        meter.start();
        tokio::select! {
            ended = listen(&mut stream, events) => ended,
            () = drain(&connection, meter) => Ok(()),
        }
    })
}

async fn listen(stream: &mut Stream, events: &Events) -> anyhow::Result<()> {
    let mut event = Vec::with_capacity(LENGTH);
    while stream.receive_into(&mut event, LENGTH).await? {
        events.arrived(&event)?;
        event.clear();
    }
    Ok(())
}

async fn drain(connection: &Connection, meter: &Meter) {
    if let Some(mut stream) = connection.accept().await {
        let mut part = vec![0; PART];
        while let Ok(Some((length, _end))) = stream.read(&mut part).await {
            meter.count(length);
        }
    }
    // The sender drops what bulk is left, so that its end is an error; only the events know when all is over.
    pending().await
}
