//! The HTTP port: `/healthz`, `/readyz`, `/metrics`, and the catalogue if the node has one.
//! Read-only.

mod metrics;
mod port;
mod site;

pub(crate) use port::{Certificate, Port};
pub(crate) use site::serve;
