//! Tests of whole sessions in memory.

mod arbitrary;
mod attacks_bypass;
mod attacks_caches;
mod attacks_endpoints;
mod attacks_handshake;
mod attacks_path;
mod attacks_records;
mod attacks_resumption;
mod attacks_wire;
mod caches;
mod chain;
mod insider;
mod keepalive;
mod limits;
mod sessions;
mod timeouts;
mod vectors;
