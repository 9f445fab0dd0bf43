//! The store of a catalogue on several nodes, with a real engine: servers on loopback, or on hosts
//! in network namespaces.

mod access;
mod clocks;
mod conformance;
mod engine;
mod full_disk;
mod interrupted;
mod kills;
mod leader;
mod load;
mod long_package;
mod nodes;
mod partition;
mod snapshot;
mod unreadable;
