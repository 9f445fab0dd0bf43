//! The store of a catalogue on several nodes, with a real engine: servers on loopback, or on hosts in network namespaces.

mod access;
mod conformance;
mod engine;
mod kills;
mod nodes;
