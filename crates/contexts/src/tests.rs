//! Tests of whole sessions in memory.

mod arbitrary;
mod attacks_bypass;
mod attacks_caches;
mod attacks_endpoints;
mod attacks_floods;
mod attacks_handshake;
mod attacks_leaked_key;
mod attacks_path;
mod attacks_records;
mod attacks_resumption;
mod attacks_shares;
mod attacks_wire;
mod caches;
mod chain;
mod insider;
mod keepalive;
mod limits;
mod nonces;
pub(crate) mod probe;
mod sessions;
mod sizes;
mod timeouts;
mod vectors;
