//! TLS after the handshake, where it carries only tickets and alerts.

use std::sync::Arc;

use super::ContextError;
use super::messages::MAX_TICKETS;
use super::schedule::EndpointKeys;
use super::tickets::{OneTicket, PathTickets};
use levada_channel::Error;
use levada_channel::parts::{ALERT, CHANGE_CIPHER_SPEC, DATA, HANDSHAKE, HEADER, RecordKey, TAG};
use levada_channel::parts::{CLOSE_NOTIFY, NEW_SESSION_TICKET, take_message};
use levada_channel::parts::{Established, Handshake, Keys};

/// The longest part of a ticket message that waits for the rest, in bytes.
const MAX_MESSAGE: usize = 16 * 1024;

/// The TLS connection of an endpoint after the handshake.
///
/// Its keys are taken out of rustls with the first record. A server needs them only when the
/// session ends, and to derive them is 4 % of its work in a resumed handshake.
pub(crate) struct Tail {
    unused: Option<Box<Handshake>>,
    keys: Option<Box<TailKeys>>,
    message: Vec<u8>,
    /// How many tickets arrived.
    tickets: u8,
    closed: bool,
}

struct TailKeys {
    tls: Keys,
    seal: RecordKey,
    open: RecordKey,
}

impl Tail {
    /// From a complete handshake.
    pub(crate) fn new(tls: Handshake) -> Self {
        let unused = Some(Box::new(tls));
        let message = Vec::new();
        Self { unused, keys: None, message, tickets: 0, closed: false }
    }

    fn keys(&mut self) -> Result<&mut TailKeys, Error> {
        if let Some(tls) = self.unused.take() {
            let Established { keys: tls, seal, open, .. } = tls.finish()?;
            let seal = RecordKey::new(seal)?;
            let open = RecordKey::new(open)?;
            self.keys = Some(Box::new(TailKeys { tls, seal, open }));
        }
        self.keys.as_deref_mut().ok_or(Error::Internal("no keys of TLS"))
    }

    /// Whether the peer has closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Memory in bytes of a message that is not complete.
    pub(crate) fn memory(&self) -> usize {
        self.message.capacity()
    }

    /// How many tickets arrived.
    pub(crate) fn tickets(&self) -> u8 {
        self.tickets
    }

    /// Takes a whole record. Only tickets, a close and alerts are expected.
    pub(crate) fn receive(&mut self, record: &[u8]) -> Result<(), ContextError> {
        let mut record = record.to_vec();
        let (kind, content) = self.keys()?.open.open(&mut record)?;
        match (kind, content) {
            _ if self.closed => Err(ContextError::Unexpected("a TLS record after the close")),
            (ALERT, [_, CLOSE_NOTIFY]) => {
                self.closed = true;
                Ok(())
            }
            (ALERT, [_, code]) => Err(Error::Alert(*code).into()),
            (HANDSHAKE, content) if !content.is_empty() => {
                self.message.extend_from_slice(content);
                self.take_tickets()
            }
            _ => Err(ContextError::Unexpected("a TLS record besides tickets and alerts")),
        }
    }

    fn take_tickets(&mut self) -> Result<(), ContextError> {
        let message = std::mem::take(&mut self.message);
        let mut rest = message.as_slice();
        while let Some((kind, body)) = take_message(&mut rest)? {
            // No key update: the keys of contexts change by counting.
            if kind != NEW_SESSION_TICKET {
                return Err(ContextError::Unexpected("a TLS message besides tickets"));
            }
            if self.tickets == MAX_TICKETS {
                return Err(ContextError::Flood("tickets"));
            }
            self.keys()?.tls.ticket(body)?;
            self.tickets += 1;
        }
        if rest.len() > MAX_MESSAGE {
            return Err(ContextError::Flood("a long TLS message"));
        }
        self.message = rest.to_vec();
        Ok(())
    }

    /// Appends a close_notify.
    pub(crate) fn close(&mut self, out: &mut Vec<u8>) -> Result<(), ContextError> {
        self.put(&[1, CLOSE_NOTIFY], ALERT, out)
    }

    /// Appends a TLS record.
    pub(crate) fn put(
        &mut self,
        content: &[u8],
        kind: u8,
        out: &mut Vec<u8>,
    ) -> Result<(), ContextError> {
        let mut body = [content, &[kind]].concat();
        let length = u16::try_from(body.len() + TAG).unwrap_or(u16::MAX).to_be_bytes();
        let header: [u8; HEADER] = [DATA, 3, 3, length[0], length[1]];
        let tag = self.keys()?.seal.seal(header, &mut body)?;
        for part in [&header[..], &body, tag.as_ref()] {
            out.extend_from_slice(part);
        }
        Ok(())
    }
}

/// Stores the tickets that arrived since `before` of them had.
pub(crate) fn keep_tickets(
    (all, one): (&PathTickets, &Arc<OneTicket>),
    before: u8,
    keys: &EndpointKeys,
) {
    for ticket in one.collect(before, keys) {
        all.insert(keys.path.server.identity, ticket);
    }
}

/// Appends TLS records that rustls wrote, without change_cipher_spec, so that the transcript has no
/// optional bytes.
///
/// # Errors
/// [`ContextError::Unexpected`] if one of them is a handshake message in the clear other than the
/// first, as after a HelloRetryRequest.
pub(crate) fn put_records(
    out: &mut Vec<u8>,
    mut records: &[u8],
    first_in_clear: bool,
) -> Result<(), ContextError> {
    let mut in_clear_allowed = first_in_clear;
    while let Some(&[kind, _, _, high, low]) = records.first_chunk::<HEADER>() {
        let length = HEADER + usize::from(u16::from_be_bytes([high, low]));
        let (record, rest) = records.split_at_checked(length).unwrap_or((records, &[]));
        if kind == HANDSHAKE && !std::mem::take(&mut in_clear_allowed) {
            return Err(ContextError::Unexpected("a second ClientHello"));
        }
        if kind != CHANGE_CIPHER_SPEC {
            out.extend_from_slice(record);
        }
        records = rest;
    }
    Ok(())
}
