//! What the peer's records and frames do to a connection.

use levada_core::{Framing, WIRE_VERSIONS};
use std::time::Instant;

use super::{Close, Connection, Event};
use crate::frame::{END, Frame};
use crate::mux::put_control;
use crate::tls::Received;
use crate::{Error, record};

impl Connection {
    pub(super) fn receive_records(
        &mut self,
        now: Instant,
        input: &mut [u8],
    ) -> Result<usize, Error> {
        let mut used = 0;
        while !self.peer_ended {
            let Some(length) = record::length(&input[used..])? else { return Ok(used) };
            let record = &mut input[used..used + length];
            used += length;
            self.liveness.on_record(now);
            match self.tls.receive(record)? {
                Received::Handled => {}
                Received::Established => self.on_established(now),
                Received::Data(content) => self.on_frames(now, content)?,
                Received::Closed => self.on_end(),
            }
        }
        // "Any data received after a closure alert ... MUST be ignored" (RFC 8446 section 6.1).
        Ok(input.len())
    }

    fn on_established(&mut self, now: Instant) {
        self.liveness.on_established(now);
        self.mux.path().rtt = self.liveness.rtt();
        if self.client {
            self.send_hello();
            // The answer shares a record with the peer's HELLO. A PING of the server would need a
            // packet of its own for the answer, so the server goes by the handshake until it grants
            // more credit.
            self.liveness.request_ping();
        }
    }

    /// Writes the first frame of this side.
    fn send_hello(&mut self) {
        let block = match self.tls.framing() {
            Framing::Auto => 0,
            Framing::Block(length) => u64::from(length),
        };
        let min = u64::from(*WIRE_VERSIONS.start());
        let max = u64::from(*WIRE_VERSIONS.end());
        put_control(&mut self.tls, &Frame::Hello { min, max, block });
        self.mux.push_event(Event::Connected);
    }

    fn on_frames(&mut self, now: Instant, content: &[u8]) -> Result<(), Error> {
        let mut rest = content;
        while !rest.is_empty() && !self.closed {
            let frame = Frame::take(&mut rest)?;
            if self.peer_framing.is_none() {
                self.on_hello(&frame)?;
                continue;
            }
            match frame {
                Frame::Data { stream, flags, bytes } => {
                    self.mux.on_data(stream, flags, bytes)?;
                    if flags == END {
                        self.mux.on_messages(stream, &mut rest)?;
                    }
                }
                Frame::Window { stream, limit } => self.mux.on_window(stream, limit)?,
                Frame::Reset { stream, code } => self.mux.on_reset(stream, code)?,
                Frame::Ping(token) => self.pong = Some(token),
                Frame::Pong(token) => {
                    self.liveness.on_pong(token, now)?;
                    self.mux.path().rtt = self.liveness.rtt();
                }
                Frame::Hello { .. } => return Err(Error::Protocol("a second HELLO")),
                Frame::Close { code, reason } => self.on_close(code, reason),
            }
        }
        Ok(())
    }

    fn on_hello(&mut self, frame: &Frame<'_>) -> Result<(), Error> {
        let (min, max, block) = match *frame {
            Frame::Hello { min, max, block } => (min, max, block),
            // A server without a version in common sends CLOSE instead of HELLO.
            Frame::Close { code, reason } => {
                self.on_close(code, reason);
                return Ok(());
            }
            _ => return Err(Error::Protocol("no HELLO at the start")),
        };
        let framing = match block {
            0 => Framing::Auto,
            _ => u16::try_from(block)
                .ok()
                .and_then(|length| Framing::block(length).ok())
                .ok_or(Error::Protocol("a block length out of bounds"))?,
        };
        self.peer_framing = Some(framing);
        self.tls.set_silent(false);
        if !self.client && self.tls.framing() == Framing::Auto {
            self.tls.set_framing(framing);
        }
        let lowest = u64::from(*WIRE_VERSIONS.start());
        let highest = u64::from(*WIRE_VERSIONS.end());
        if min > max || max < lowest || min > highest {
            return Err(Error::Version { min, max });
        }
        self.version = u32::try_from(max.min(highest)).unwrap_or(*WIRE_VERSIONS.start());
        if !self.client {
            self.send_hello();
        }
        Ok(())
    }

    /// The peer closes: this side answers with close_notify and writes nothing after it.
    fn on_close(&mut self, code: u64, reason: &str) {
        self.tls.close_notify();
        self.set_closed(code, reason, true);
    }

    fn on_end(&mut self) {
        self.peer_ended = true;
        if !self.closed {
            self.on_close(Close::DONE, "");
        }
    }
}
