//! One channel connection with an interactive stream for events and a bulk stream.

use std::future::pending;
use std::net::TcpStream;

use anyhow::Context;
use levada_session::{Class, Connection, Options, Stream, accept, connect};
use levada_transport::Tcp;

use super::BULK_MESSAGE;
use super::events::{Events, LENGTH};
use crate::channels::ends::{Meter, block_on};
use crate::channels::levada::{Keys, PART};

/// Sends events, and fills the link with bulk if `bulk`, until stopped.
pub fn send(
    keys: &Keys,
    socket: TcpStream,
    bulk: bool,
    events: &Events,
    meter: &Meter,
) -> anyhow::Result<()> {
    block_on(async {
        let transport = Box::new(Tcp::new(tokio::net::TcpStream::from_std(socket)?)?);
        let connection =
            connect(transport, &keys.client, Some(keys.identity), Options::default()).await?;
        let mut stream = connection.open(Class::Interactive)?;
        // A stream is opened by its first message; the peer expects that of the events first.
        stream.send(&[0; LENGTH]).await?;
        meter.start();
        let send = events.send_all(meter, async |event| Ok(stream.send(event).await?));
        tokio::try_join!(send, fill(&connection, bulk, meter))?;
        stream.finish().await?;
        // The peer closes after the last event. This side must not close earlier: closing a socket
        // with unread data sends a reset, which discards data that is still queued.
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

/// Receives events until their stream ends, and bulk meanwhile.
pub fn receive(
    keys: &Keys,
    socket: TcpStream,
    events: &Events,
    meter: &Meter,
) -> anyhow::Result<()> {
    block_on(async {
        let transport = Box::new(Tcp::new(tokio::net::TcpStream::from_std(socket)?)?);
        let connection = accept(transport, &keys.server, Options::default()).await?;
        let mut stream = connection.accept().await.context("no stream")?;
        meter.start();
        tokio::select! {
            ended = receive_events(&mut stream, events) => ended,
            () = drain(&connection, meter) => Ok(()),
        }
    })
}

async fn receive_events(stream: &mut Stream, events: &Events) -> anyhow::Result<()> {
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
    // The sender drops the bulk stream, so its end is an error. The stream of the events decides
    // when this ends.
    pending().await
}
