//! Measures the throughput of messages from one connection to another in memory, on one thread: the
//! cost of framing, sealing, opening and reading, without a transport.
//!
//! `cargo run -p levada-channel --example throughput [MESSAGE BYTES [MEBIBYTES]]`

use levada_channel::{Class, ClientConfig, Connection, Event, Options, Read, ServerConfig};
use levada_core::{SecretKey, SystemRandom};
use std::error::Error;
use std::time::Instant;

/// Moves all pending bytes from one end to the other.
fn pump(
    from: &mut Connection,
    to: &mut Connection,
    buffer: &mut Vec<u8>,
) -> Result<(), Box<dyn Error>> {
    buffer.clear();
    from.transmit(Instant::now(), buffer);
    from.written();
    let taken = to.receive(Instant::now(), buffer)?;
    assert_eq!(taken, buffer.len(), "whole records only");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let size = arguments.next().transpose()?.unwrap_or(256);
    let total = arguments.next().transpose()?.unwrap_or(1024) << 20;

    let client_key = SecretKey::generate(&SystemRandom)?;
    let server_key = SecretKey::generate(&SystemRandom)?;
    let now = Instant::now();
    let config = ClientConfig::new(&client_key)?;
    let mut client =
        Connection::client(&config, Some(server_key.identity()), Options::default(), now)?;
    let mut server = Connection::server(&ServerConfig::new(&server_key)?, Options::default(), now)?;
    let mut buffer = Vec::new();
    for _ in 0..3 {
        pump(&mut client, &mut server, &mut buffer)?;
        pump(&mut server, &mut client, &mut buffer)?;
    }

    let ours = client.open(Class::Bulk)?;
    pump(&mut client, &mut server, &mut buffer)?;
    let mut theirs = None;
    while let Some(event) = server.poll_event() {
        if let Event::Opened(id) = event {
            theirs = Some(id);
        }
    }
    let theirs = theirs.ok_or("no stream was opened")?;

    let message = vec![7; size];
    let mut recv_buffer = vec![0; size];
    let mut sent = 0;
    let mut done = 0;
    let mut received = 0;
    let mut messages = 0u64;
    let start = Instant::now();
    while received < total {
        while let Some(len) = client.write(ours, &message[done..], true)? {
            sent += len;
            done = if done + len == size { 0 } else { done + len };
            if sent >= total && done == 0 {
                break;
            }
        }
        pump(&mut client, &mut server, &mut buffer)?;
        while let Read::Data { len, end } = server.read(theirs, &mut recv_buffer)? {
            received += len;
            messages += u64::from(end);
        }
        pump(&mut server, &mut client, &mut buffer)?;
        while client.poll_event().is_some() || server.poll_event().is_some() {}
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{messages} messages of {size} bytes: {:.0} MB/s, {:.0} ns each",
        received as f64 / seconds / 1e6,
        seconds * 1e9 / messages as f64
    );
    Ok(())
}
