//! TCP with nothing on top but message lengths: what encryption and multiplexing are measured against.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::ends::{Meter, block_on};

/// As much as one write of a channel.
pub const BATCH: usize = 256 * 1024;
/// As much as a channel's driver reads at once from a busy peer.
pub const READ: usize = 288 * 1024;
/// The length in front of a message.
pub const HEADER: usize = 4;

/// Sends messages, each behind its length, in writes of 256 KiB.
pub fn send_batched(socket: TcpStream, message: &[u8], meter: &Meter) -> anyhow::Result<()> {
    block_on(async {
        let mut socket = tokio::net::TcpStream::from_std(socket)?;
        meter.start();
        batches(&mut socket, message, meter).await
    })
}

/// Receives what [`send_batched`] sends.
pub fn receive_batched(socket: TcpStream, meter: &Meter) -> anyhow::Result<()> {
    block_on(async {
        let mut socket = tokio::net::TcpStream::from_std(socket)?;
        meter.start();
        parts(&mut socket, meter).await
    })
}

/// Fills a batch with messages, writes it, and begins again, until stopped.
pub async fn batches(
    link: &mut (impl AsyncWrite + Unpin),
    message: &[u8],
    meter: &Meter,
) -> anyhow::Result<()> {
    let header = u32::try_from(message.len())?.to_be_bytes();
    let mut batch = Vec::with_capacity(BATCH + HEADER);
    while !meter.stopped() {
        batch.extend_from_slice(&header);
        let mut rest = message;
        loop {
            let (part, tail) = rest.split_at(rest.len().min(BATCH.saturating_sub(batch.len())));
            batch.extend_from_slice(part);
            rest = tail;
            if batch.len() >= BATCH {
                link.write_all(&batch).await?;
                link.flush().await?;
                batch.clear();
            }
            if rest.is_empty() {
                break;
            }
        }
    }
    Ok(())
}

/// Reads messages, each behind its length, and hands them to the application part by part, until the end.
pub async fn parts(link: &mut (impl AsyncRead + Unpin), meter: &Meter) -> anyhow::Result<()> {
    let mut buffer = vec![0; READ];
    let mut application = vec![0; READ];
    let (mut filled, mut left) = (0, 0);
    loop {
        let length = link.read(&mut buffer[filled..]).await?;
        if length == 0 {
            return Ok(());
        }
        filled += length;
        let mut at = 0;
        loop {
            if left == 0 {
                let Some(header) = buffer[at..filled].first_chunk::<HEADER>() else { break };
                left = u32::from_be_bytes(*header) as usize;
                at += HEADER;
            }
            let part = left.min(filled - at);
            if part == 0 {
                break;
            }
            application[..part].copy_from_slice(&buffer[at..at + part]);
            std::hint::black_box(&mut application);
            meter.count(part);
            at += part;
            left -= part;
        }
        buffer.copy_within(at..filled, 0);
        filled -= at;
    }
}

/// Sends each message behind its length in a write of its own, with nothing between it and the system.
pub fn send_each(mut socket: TcpStream, message: &[u8], meter: &Meter) -> anyhow::Result<()> {
    socket.set_nonblocking(false)?;
    let header = u32::try_from(message.len())?.to_be_bytes();
    let framed = [&header[..], message].concat();
    meter.start();
    while !meter.stopped() {
        socket.write_all(&framed)?;
    }
    Ok(())
}

/// Receives each message with reads of its own: the length, then the message.
pub fn receive_each(socket: TcpStream, meter: &Meter) -> anyhow::Result<()> {
    socket.set_nonblocking(false)?;
    let mut reader = io::BufReader::with_capacity(READ, socket);
    let mut message = vec![0; READ];
    meter.start();
    loop {
        let mut header = [0; HEADER];
        if let Err(error) = reader.read_exact(&mut header) {
            let end = error.kind() == io::ErrorKind::UnexpectedEof;
            return if end { Ok(()) } else { Err(error.into()) };
        }
        let mut left = u32::from_be_bytes(header) as usize;
        while left > 0 {
            let part = left.min(message.len());
            let length = reader.read(&mut message[..part])?;
            if length == 0 {
                return Ok(());
            }
            meter.count(length);
            left -= length;
        }
    }
}
