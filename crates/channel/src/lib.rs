//! Handshake, records, framing and multiplexer; time and bytes are passed in.
//!
//! The caller drives a [`Connection`]: it passes bytes from the transport to
//! [`Connection::receive`], takes bytes for it from [`Connection::transmit`], passes the time to
//! both and to [`Connection::handle_timeout`], and takes events from [`Connection::poll_event`].
//! This crate does no I/O.
//!
//! The modules, from the wire upwards: `handshake` (TLS 1.3 by rustls, with `config`, `verifier`,
//! `exporter`), `record` and `output` (sealing and opening records in the TLS 1.3 format), `tls` (a
//! TLS connection that carries bytes, made of these), `varint` and `frame` (the content of
//! records), `credit`, `stream`, `recv_buffer` and `mux` (messages of many streams), `liveness`
//! (timeouts and keep-alive), `connection`.

#![forbid(unsafe_code)]

mod config;
mod connection;
mod credit;
mod error;
mod exporter;
mod frame;
mod handshake;
#[cfg(feature = "keylog")]
mod keylog;
mod liveness;
mod mux;
mod output;
pub mod parts;
mod record;
mod recv_buffer;
mod stream;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tls;
mod varint;
mod verifier;

#[cfg(test)]
mod tests;

pub use config::{ClientConfig, Options, ServerConfig};
pub use connection::{Close, Connection, Event};
pub use error::{Error, StreamError};
pub use mux::{Read, StreamId, Taken};
pub use recv_buffer::RecvBuffer;
pub use stream::Class;
