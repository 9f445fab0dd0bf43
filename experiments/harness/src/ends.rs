//! Two ends on two threads, each pinned to a core, and what they cost.

use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, gettid, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Pins the calling thread to one core, counted from 0; a machine with fewer cores wraps round.
///
/// # Errors
/// The system's.
pub fn pin(core: usize) -> io::Result<()> {
    let cores = thread::available_parallelism()?.get();
    let mut set = CpuSet::new();
    set.set(core % cores);
    Ok(sched_setaffinity(None, &set)?)
}

/// The CPU time of one thread, which any other thread may read.
#[derive(Clone, Debug)]
pub struct Clock(String);

impl Clock {
    /// Of the calling thread.
    pub fn of_this_thread() -> Self {
        Self(format!("/proc/self/task/{}/schedstat", gettid().as_raw_nonzero()))
    }

    /// Seconds on a CPU so far, good to a tick of the scheduler (4 ms or less).
    ///
    /// # Errors
    /// If the thread has ended, or the kernel keeps no such account.
    pub fn seconds(&self) -> io::Result<f64> {
        let text = fs::read_to_string(&self.0)?;
        let first = text.split(' ').next().and_then(|number| number.parse::<u64>().ok());
        let nanoseconds = first.ok_or(io::ErrorKind::InvalidData)?;
        Ok(nanoseconds as f64 * 1e-9)
    }
}

/// CPU time of the calling thread so far: to the nanosecond, which [`Clock`] is not while the thread runs.
pub fn own_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

/// The threads of the two ends of something that is being measured.
#[derive(Clone, Debug)]
pub struct Ends {
    /// The end that sends.
    pub near: Clock,
    /// The end that receives.
    pub far: Clock,
}

/// What a stretch of time gave.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// How long it was, in seconds.
    pub seconds: f64,
    /// CPU time of both ends, in seconds.
    pub cpu_seconds: f64,
    /// By how much the counter rose.
    pub counted: u64,
}

impl Ends {
    /// Lets `warm_up` pass, then watches a counter for `length`.
    ///
    /// # Errors
    /// If a thread has ended meanwhile.
    pub fn watch(
        &self,
        warm_up: Duration,
        length: Duration,
        counter: impl Fn() -> u64,
    ) -> io::Result<Window> {
        let look = || Ok::<_, io::Error>((self.cpu()?, counter(), Instant::now()));
        thread::sleep(warm_up);
        let (cpu, count, time) = look()?;
        thread::sleep(length);
        let (cpu_end, count_end, time_end) = look()?;
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

/// Runs both ends on threads of their own, pinned to cores 0 and 1, and waits for both. `near` and `far` enter
/// a thread and call what they are given there: [`std::convert::identity`] has nothing to enter.
pub fn on_threads<A: Send, B: Send>(
    near: impl FnOnce() -> A + Send,
    far: impl FnOnce() -> B + Send,
) -> (thread::Result<A>, thread::Result<B>) {
    thread::scope(|scope| {
        let near = scope.spawn(near);
        let far = scope.spawn(far);
        (near.join(), far.join())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    #[test]
    fn sleeping_costs_a_thread_less_than_working() {
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
    fn a_busy_thread_costs_and_an_idle_one_does_not() {
        let stop = AtomicBool::new(false);
        let (send, clocks) = mpsc::channel();
        thread::scope(|scope| {
            let busy = send.clone();
            scope.spawn(|| {
                busy.send(Clock::of_this_thread()).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                drop(busy);
            });
            let near = clocks.recv().unwrap();
            let ends = Ends { near: near.clone(), far: near };
            let window = ends.watch(Duration::ZERO, Duration::from_millis(200), || 7).unwrap();
            stop.store(true, Ordering::Relaxed);
            assert!(window.cpu_seconds > 0.02, "{window:?}");
            assert_eq!(window.counted, 0);
        });
    }
}
