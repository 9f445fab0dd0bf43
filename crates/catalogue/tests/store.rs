//! The embedded store: databases of released versions, kills, losses of power and full disks.

mod database_formats;
mod full_disk;
#[cfg(feature = "root-tests")]
mod full_tmpfs;
mod kill;
mod power_loss;
mod scenario;
mod support;

#[cfg(feature = "engine-tests")]
pub use support::in_full;
