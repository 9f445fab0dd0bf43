//! Tests of whole sessions in memory.

mod caches;
mod chain;
mod sessions;
