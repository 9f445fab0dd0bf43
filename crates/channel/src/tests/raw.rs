//! A client that can write any record and any frame, and the server under test.

use std::time::Instant;

use super::pair::Endpoints;
use crate::frame::Frame;
use crate::record::DATA;
use crate::tls::{Received, Tls};
use crate::{Connection, Error, Event, Options, StreamId};

/// The two ends of a TLS connection without streams.
pub(super) fn tls_pair(endpoints: &Endpoints) -> (Tls, Tls) {
    let mut client = Tls::client(&endpoints.client, Some(endpoints.server_key.identity())).unwrap();
    let mut server = Tls::server(&endpoints.server).unwrap();
    for _ in 0..3 {
        receive_all(&mut server, &take(&mut client)).unwrap();
        receive_all(&mut client, &take(&mut server)).unwrap();
    }
    assert!(client.is_established() && server.is_established());
    (client, server)
}

/// The pending bytes of `tls`.
pub(super) fn take(tls: &mut Tls) -> Vec<u8> {
    let mut bytes = Vec::new();
    tls.transmit(&mut bytes);
    bytes
}

/// The application data in `bytes`, and whether they end with a close.
pub(super) fn receive_all(tls: &mut Tls, bytes: &[u8]) -> Result<(Vec<u8>, bool), Error> {
    let mut bytes = bytes.to_vec();
    let mut rest = bytes.as_mut_slice();
    let mut data = Vec::new();
    let mut closed = false;
    while let Some(length) = crate::record::length(rest)? {
        let (record, tail) = rest.split_at_mut(length);
        match tls.receive(record)? {
            Received::Data(content) => data.extend_from_slice(content),
            Received::Closed => closed = true,
            Received::Handled | Received::Established => {}
        }
        rest = tail;
    }
    Ok((data, closed))
}

/// Writes application data into records.
pub(super) fn write(tls: &mut Tls, mut data: &[u8]) {
    while !data.is_empty() {
        let (part, rest) = data.split_at(tls.room(1).min(data.len()));
        tls.content().extend_from_slice(part);
        data = rest;
    }
}

/// A misbehaving client and its server.
pub(super) struct Raw {
    pub(super) tls: Tls,
    pub(super) server: Connection,
    pub(super) now: Instant,
}

impl Raw {
    /// After the TLS handshake, before HELLO.
    pub(super) fn silent(options: Options) -> Self {
        let endpoints = Endpoints::new();
        let now = Instant::now();
        let mut tls =
            Tls::client(&endpoints.client, Some(endpoints.server_key.identity())).unwrap();
        let mut server = Connection::server(&endpoints.server, options, now).unwrap();
        for _ in 0..2 {
            let mut bytes = take(&mut tls);
            server.receive(now, &mut bytes).unwrap();
            server.transmit(now, &mut bytes);
            receive_all(&mut tls, &bytes).unwrap();
        }
        assert!(tls.is_established());
        Self { tls, server, now }
    }

    /// After HELLO.
    pub(super) fn new() -> Self {
        let mut raw = Self::silent(Options::default());
        raw.frames(&[Frame::Hello { min: 1, max: 1, block: 0 }]).unwrap();
        assert_eq!(raw.server.poll_event(), Some(Event::Connected));
        raw
    }

    /// Sends each frame in a record.
    pub(super) fn frames(&mut self, frames: &[Frame<'_>]) -> Result<(), Error> {
        for frame in frames {
            let mut bytes = Vec::new();
            frame.put(&mut bytes);
            self.record(DATA, &bytes)?;
        }
        Ok(())
    }

    /// Sends one record.
    pub(super) fn record(&mut self, kind: u8, content: &[u8]) -> Result<(), Error> {
        self.tls.put_record(kind, content);
        let mut bytes = take(&mut self.tls);
        self.server.receive(self.now, &mut bytes).map(drop)
    }

    /// The pending bytes of the server, and the frames in them.
    pub(super) fn answer(&mut self) -> (Vec<u8>, Vec<u8>) {
        let mut bytes = Vec::new();
        self.server.transmit(self.now, &mut bytes);
        let (data, _) = receive_all(&mut self.tls, &bytes).unwrap();
        (bytes, data)
    }

    /// The next stream that the server reports as opened.
    pub(super) fn accept(&mut self) -> StreamId {
        loop {
            match self.server.poll_event() {
                Some(Event::Opened(id)) => return id,
                Some(_) => {}
                None => panic!("no stream was opened"),
            }
        }
    }
}
