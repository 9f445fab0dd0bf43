//! Handshake, records, framing and multiplexer; time and bytes are passed in.
//!
//! A [`Connection`] is driven from outside: bytes from the transport go into
//! [`Connection::receive`], bytes for it come out of [`Connection::transmit`], time arrives with
//! both and with [`Connection::handle_timeout`], and [`Connection::poll_event`] says what happened.
//! Nothing here does I/O.
//!
//! From the wire upwards: `handshake` (TLS 1.3 by rustls, with `config`, `verifier`, `exporter`),
//! `record` and `output` (sealing and opening records in the TLS 1.3 format), `tls` (all that
//! joined: a TLS connection that carries bytes), `varint` and `frame` (what a record carries),
//! `credit`, `stream` and `mux` (messages of many streams), `liveness` (time), `connection`.

#![forbid(unsafe_code)]

mod config;
mod connection;
mod credit;
mod error;
mod exporter;
mod frame;
mod handshake;
mod inbox;
#[cfg(feature = "keylog")]
mod keylog;
mod liveness;
mod mux;
mod output;
mod record;
mod stream;
mod tls;
mod varint;
mod verifier;

#[cfg(test)]
mod tests;

pub use config::{ClientConfig, Options, ServerConfig};
pub use connection::{Close, Connection, Event};
pub use error::{Error, StreamError};
pub use inbox::Inbox;
pub use mux::{Class, Read, StreamId, Taken};
