//! Tests with two ends on a simulated link, with hostile peers, and with an unmodified rustls peer.

mod fairness;
mod flow;
mod hostile;
mod interop;
mod lifecycle;
mod pair;
mod raw;
mod records;
