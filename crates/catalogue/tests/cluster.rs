//! The store of a catalogue on several nodes, with a real engine of three servers on loopback.

mod conformance;
mod engine;
mod kills;
mod nodes;
