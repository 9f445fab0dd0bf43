//! TCP with length-prefixed messages: the baseline without encryption and multiplexing.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::ends::{Meter, block_on};

/// The length of a write, in bytes.
pub const BATCH: usize = 256 * 1024;
/// The same for the fastest writes of plain TCP, as of a channel: they leave no short packet on
/// loopback.
pub const FITTED_BATCH: usize = 120 * 1024;
/// The same for the fastest writes of rustls, which passes on at most 64 KiB at a time.
pub const FITTED_TLS_BATCH: usize = 56 * 1024;
/// The length of a read buffer in bytes, as of a channel's driver.
pub const READ: usize = 288 * 1024;
/// The length of a message's length prefix, in bytes.
pub const HEADER: usize = 4;

/// Sends length-prefixed messages, in writes of `batch` bytes.
pub fn send_batched(
    socket: TcpStream,
    batch: usize,
    message: &[u8],
    meter: &Meter,
) -> anyhow::Result<()> {
    block_on(async {
        let mut socket = tokio::net::TcpStream::from_std(socket)?;
        meter.start();
        write_batches(&mut socket, batch, message, meter).await
    })
}

/// Receives what [`send_batched`] sends.
pub fn receive_batched(socket: TcpStream, meter: &Meter) -> anyhow::Result<()> {
    block_on(async {
        let mut socket = tokio::net::TcpStream::from_std(socket)?;
        meter.start();
        read_messages(&mut socket, meter).await
    })
}

/// Writes batches, of `size` bytes, of length-prefixed messages until stopped.
pub async fn write_batches(
    stream: &mut (impl AsyncWrite + Unpin),
    size: usize,
    message: &[u8],
    meter: &Meter,
) -> anyhow::Result<()> {
    let header = u32::try_from(message.len())?.to_be_bytes();
    let mut batch = Vec::with_capacity(size + HEADER);
    while !meter.stopped() {
        batch.extend_from_slice(&header);
        let mut rest = message;
        loop {
            let (part, tail) = rest.split_at(rest.len().min(size.saturating_sub(batch.len())));
            batch.extend_from_slice(part);
            rest = tail;
            if batch.len() >= size {
                stream.write_all(&batch).await?;
                stream.flush().await?;
                batch.clear();
            }
            if rest.is_empty() {
                break;
            }
        }
    }
    Ok(())
}

/// Reads length-prefixed messages and copies them to an application's buffer, until the end of the
/// stream.
pub async fn read_messages(
    stream: &mut (impl AsyncRead + Unpin),
    meter: &Meter,
) -> anyhow::Result<()> {
    let mut buffer = vec![0; READ];
    let mut application = vec![0; READ];
    let mut filled = 0;
    let mut left = 0;
    loop {
        let length = stream.read(&mut buffer[filled..]).await?;
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

/// Sends each length-prefixed message in a write of its own, on a blocking socket.
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

/// Receives each message by two reads through a buffer: the length, then the message.
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
