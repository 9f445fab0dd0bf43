//! Events on one TCP connection, bulk on another.

use std::future::pending;
use std::io::ErrorKind;
use std::net::TcpStream;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::BULK_MESSAGE;
use super::events::{Events, LENGTH};
use crate::channels::ends::{Meter, block_on};
use crate::channels::tcp;

/// Sends events on one connection, and fills the link on the other if there is one, until stopped.
pub fn send(
    socket: TcpStream,
    bulk: Option<TcpStream>,
    events: &Events,
    meter: &Meter,
) -> anyhow::Result<()> {
    block_on(async {
        let mut socket = tokio::net::TcpStream::from_std(socket)?;
        let fill = async {
            if let Some(bulk) = bulk {
                let mut bulk = tokio::net::TcpStream::from_std(bulk)?;
                tcp::write_batches(&mut bulk, tcp::BATCH, &[7; BULK_MESSAGE], meter).await?;
            }
            Ok(())
        };
        meter.start();
        let send = events.send_all(meter, async |event| Ok(socket.write_all(event).await?));
        tokio::try_join!(send, fill).map(|_| ())
    })
}

/// Receives events until their connection ends, and bulk meanwhile.
pub fn receive(
    socket: TcpStream,
    bulk: Option<TcpStream>,
    events: &Events,
    meter: &Meter,
) -> anyhow::Result<()> {
    block_on(async {
        let mut socket = tokio::net::TcpStream::from_std(socket)?;
        let drain = async {
            if let Some(bulk) = bulk {
                tcp::read_messages(&mut tokio::net::TcpStream::from_std(bulk)?, meter).await?;
            }
            // The connection of the events decides when this ends.
            pending().await
        };
        meter.start();
        tokio::select! {
            ended = receive_events(&mut socket, events) => ended,
            failed = drain => failed,
        }
    })
}

async fn receive_events(socket: &mut tokio::net::TcpStream, events: &Events) -> anyhow::Result<()> {
    let mut event = [0; LENGTH];
    loop {
        match socket.read_exact(&mut event).await {
            Ok(_) => events.arrived(&event)?,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}
