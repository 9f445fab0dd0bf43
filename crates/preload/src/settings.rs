//! What `levada fast` passes on in the environment.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

struct Settings {
    socket: Option<String>,
    run: u64,
    sleeps_at_once: bool,
    trusts_seccomp: bool,
    offer_at: Option<u32>,
    is_direct: bool,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// Reads the environment, once, before the program may change it.
pub fn read() {
    SETTINGS.get_or_init(|| Settings {
        socket: std::env::var("LEVADA_FAST_SOCKET").ok(),
        run: std::env::var("LEVADA_FAST_RUN").ok().and_then(|run| run.parse().ok()).unwrap_or(0),
        sleeps_at_once: std::env::var_os("LEVADA_FAST_SPIN").is_some_and(|value| value == "0"),
        offer_at: std::env::var("LEVADA_FAST_OFFER_AT").ok().and_then(|number| number.parse().ok()),
        is_direct: std::env::var_os("LEVADA_FAST_DIRECT").is_some_and(|value| value == "1"),
        trusts_seccomp: std::env::var_os("LEVADA_FAST_SECCOMP")
            .is_some_and(|value| value == "trust"),
    });
}

/// Set once no more connections may be fast.
static IS_OFF: AtomicBool = AtomicBool::new(false);

/// From now on, [`socket`] is `None`: no descriptor is noted any more.
pub fn turn_off() {
    IS_OFF.store(true, Ordering::SeqCst);
}

/// Whether the program may have fast sockets under a filter of seccomp(2) that it was started with
/// (LEVADA_FAST_SECCOMP=trust): containers have one that permits all that this library needs.
pub fn trusts_seccomp() -> bool {
    SETTINGS.get().is_some_and(|settings| settings.trusts_seccomp)
}

/// Where the monitor listens. `None` if the program was not started by `levada fast`.
pub fn socket() -> Option<&'static str> {
    if IS_OFF.load(Ordering::Relaxed) {
        return None;
    }
    SETTINGS.get().and_then(|settings| settings.socket.as_deref())
}

/// The exchange in which all connections are offered, whatever the history of their listeners
/// (LEVADA_FAST_OFFER_AT).
pub fn offer_at() -> Option<u32> {
    SETTINGS.get().and_then(|settings| settings.offer_at)
}

/// Returns true if connections may be made without the kernel (LEVADA_FAST_DIRECT=1).
pub fn is_direct() -> bool {
    socket().is_some() && SETTINGS.get().is_some_and(|settings| settings.is_direct)
}

/// The number of the run.
pub fn run() -> u64 {
    SETTINGS.get().map_or(0, |settings| settings.run)
}

/// Whether waits sleep without a look before (LEVADA_FAST_SPIN=0): for measurements, and for
/// machines whose processors others need.
pub fn sleeps_at_once() -> bool {
    SETTINGS.get().is_some_and(|settings| settings.sleeps_at_once)
}
