//! The catalogue over HTTP/1.1: read-only.
//!
//! `route.rs` maps a request to a [`Response`] from the index, or to a job that reads the store on
//! a blocking thread. `rethink.rs` answers `/.well-known/` as the reTHINK catalogue does, `v1.rs`
//! the API of this catalogue, `page.rs` a page for browsers. A connection (`connection.rs`) parses
//! pipelined requests, answers them in order and sends several answers in one write.
//!
//! Only POST under `/.well-known/` may have a body (`body_reader.rs`). Any other request with a
//! body is refused and its connection is closed, so that a proxy and this server never disagree on
//! where a request ends.
//!
//! Imports go one way: [`serve`] and `connection` use `route`, `route` the handlers (`v1`, `page`,
//! `rethink`), the handlers the [`Site`] and the types of requests and responses.

mod behind;
mod body;
mod body_reader;
mod cache;
mod close;
mod config;
mod connection;
mod content;
mod deadline;
mod decimal;
mod events;
mod hosts;
mod json;
mod limiter;
mod openapi;
mod page;
mod path;
mod problem;
mod query;
mod range;
mod reply;
mod request;
mod response;
#[cfg(feature = "rethink")]
mod rethink;
mod route;
mod send_buffer;
mod serve;
mod site;
mod socket;
mod tag;
#[cfg(test)]
mod tests;
mod tls;
mod v1;
mod verify;

pub use body::Body;
pub use body_reader::MAX_BODY;
pub use config::{Config, MIN_PROGRESS, Timeouts};
pub use hosts::{Hosts, HostsError};
pub use openapi::document as openapi_document;
pub use request::{MAX_HEAD, MAX_HEADERS, Method, Parsed, Refusal, Request, parse};
pub use response::Response;
pub use serve::serve;
pub use site::{Counters, Extra, Site};
pub use tls::{Tls, TlsError};
