//! A network lab: network namespaces as nodes, joined by emulated links with a given delay, rate
//! and loss.
//!
//! ```no_run
//! use std::time::Duration;
//! use levada_lab::{Lab, Link, Options};
//!
//! let mut lab = Lab::new(Options::default())?;
//! let (client, server) = (lab.node("client")?, lab.node("server")?);
//! lab.link(&client, &server, &Link::new().delay(Duration::from_millis(20)))?;
//! let listener = server.run(|| std::net::TcpListener::bind((server.address(), 0)))?;
//! # Ok::<(), levada_lab::LabError>(())
//! ```

mod attest;
mod backend;
pub mod command;
mod emulator;
mod error;
mod lab;
mod link;
mod link_handle;
mod measures;
mod node;
mod options;
mod ping;
mod routes;
mod segment;
mod settings;
mod transfer;
mod veth;

pub use attest::Attestation;
pub use error::LabError;
pub use lab::Lab;
pub use link::{Change, Link, Loss};
pub use link_handle::LinkHandle;
pub use measures::{Counters, Lateness, Measures};
pub use node::Node;
pub use options::{Backend, Options};
pub use segment::Segment;
pub use transfer::{throughput, throughput_at};
