//! What a monitor is started with.

use std::time::Duration;

/// How long a monitor waits, and what it permits.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// It ends when it had no client for so long; never if `None`.
    pub idle: Option<Duration>,
    /// An offer is refused if the other end was not offered within this time.
    pub offer_timeout: Duration,
    /// The memory that rings of all processes may take, in bytes. Connections beyond it stay on
    /// TCP, and rings do not grow.
    pub memory: u64,
}

impl Default for Options {
    /// Without an end; offers wait for 5 s; rings take a quarter of this machine's memory.
    fn default() -> Self {
        let system = rustix::system::sysinfo();
        let all = system.totalram.saturating_mul(system.mem_unit.into());
        Self { idle: None, offer_timeout: Duration::from_secs(5), memory: all / 4 }
    }
}
