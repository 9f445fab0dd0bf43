//! Pinning of threads to cores, and their CPU time.

use std::fs;
use std::io;
use std::num::NonZero;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, gettid, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Pins the calling thread to core `core` modulo the number of cores.
///
/// # Errors
/// The operating system's.
pub fn pin(core: usize) -> io::Result<()> {
    // Counted once: the number is that of the cores which the calling thread may use, and a thread
    // inherits the core that its parent is pinned to.
    static CORES: OnceLock<usize> = OnceLock::new();
    let count = || thread::available_parallelism().map_or(1, NonZero::get);
    let cores = CORES.get_or_init(count);
    let mut set = CpuSet::new();
    set.set(core % cores);
    Ok(sched_setaffinity(None, &set)?)
}

/// The CPU time of one thread, readable from any thread.
#[derive(Clone, Debug)]
pub struct ThreadClock(String);

impl ThreadClock {
    /// The clock of the calling thread.
    pub fn current() -> Self {
        Self(format!("/proc/self/task/{}/schedstat", gettid().as_raw_nonzero()))
    }

    /// CPU time so far, in seconds; the resolution is a scheduler tick (4 ms or less).
    ///
    /// # Errors
    /// If the thread has ended, or the kernel has no schedstat.
    pub fn seconds(&self) -> io::Result<f64> {
        let text = fs::read_to_string(&self.0)?;
        let first = text.split(' ').next().and_then(|number| number.parse::<u64>().ok());
        let nanoseconds = first.ok_or(io::ErrorKind::InvalidData)?;
        Ok(nanoseconds as f64 * 1e-9)
    }
}

/// CPU time of the calling thread so far, at a resolution of one nanosecond, other than
/// [`ThreadClock`].
pub fn own_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

/// The clocks of the sending and the receiving thread of a measurement.
#[derive(Clone, Debug)]
pub struct EndClocks {
    /// The sending end.
    pub near: ThreadClock,
    /// The receiving end.
    pub far: ThreadClock,
}

/// The result of a measurement window.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Its length in seconds.
    pub seconds: f64,
    /// CPU time of both ends, in seconds.
    pub cpu_seconds: f64,
    /// The increase of the counter.
    pub counted: u64,
}

impl EndClocks {
    /// Sleeps for `warm_up`, then measures a counter and CPU time for `length`.
    ///
    /// # Errors
    /// If a thread has ended meanwhile.
    pub fn measure(
        &self,
        warm_up: Duration,
        length: Duration,
        counter: impl Fn() -> u64,
    ) -> io::Result<Window> {
        let snapshot = || Ok::<_, io::Error>((self.cpu()?, counter(), Instant::now()));
        thread::sleep(warm_up);
        let (cpu, count, time) = snapshot()?;
        thread::sleep(length);
        let (cpu_end, count_end, time_end) = snapshot()?;
        Ok(Window {
            seconds: (time_end - time).as_secs_f64(),
            cpu_seconds: cpu_end - cpu,
            counted: count_end - count,
        })
    }

    fn cpu(&self) -> io::Result<f64> {
        Ok(self.near.seconds()? + self.far.seconds()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    #[test]
    fn sleeping_takes_less_cpu_time_than_working() {
        let before = own_cpu_time();
        thread::sleep(Duration::from_millis(20));
        let slept = own_cpu_time() - before;
        let until = Instant::now() + Duration::from_millis(100);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        assert!(own_cpu_time() - before - slept > slept);
    }

    #[test]
    fn a_window_counts_the_cpu_time_of_a_busy_thread() {
        let stop = AtomicBool::new(false);
        let (send, clocks) = mpsc::channel();
        thread::scope(|scope| {
            let busy = send.clone();
            scope.spawn(|| {
                busy.send(ThreadClock::current()).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                drop(busy);
            });
            let near = clocks.recv().unwrap();
            let ends = EndClocks { near: near.clone(), far: near };
            let window = ends.measure(Duration::ZERO, Duration::from_millis(200), || 7).unwrap();
            stop.store(true, Ordering::Relaxed);
            assert!(window.cpu_seconds > 0.02, "{window:?}");
            assert_eq!(window.counted, 0);
        });
    }
}
