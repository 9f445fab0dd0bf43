//! A clock that ticks at even intervals.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// A descriptor that becomes readable with every tick: a runtime that waits for it sleeps until then to some
/// ten microseconds, where its own timers are good to a millisecond.
#[derive(Debug)]
pub struct Ticks(OwnedFd);

impl Ticks {
    /// The first tick comes after one interval.
    ///
    /// # Errors
    /// The system's; an interval of zero would never tick.
    pub fn every(interval: Duration) -> io::Result<Self> {
        if interval.is_zero() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let time = Timespec {
            tv_sec: i64::try_from(interval.as_secs()).map_err(io::Error::other)?,
            tv_nsec: interval.subsec_nanos().into(),
        };
        let time = Itimerspec { it_interval: time, it_value: time };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &time)?;
        Ok(Self(timer))
    }

    /// How many ticks have come since it was last asked.
    ///
    /// # Errors
    /// `WouldBlock` if none has.
    pub fn take(&self) -> io::Result<u64> {
        let mut count = [0; 8];
        rustix::io::read(&self.0, &mut count)?;
        Ok(u64::from_ne_bytes(count))
    }
}

impl AsFd for Ticks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Ticks {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_that_nobody_took_are_counted() {
        let ticks = Ticks::every(Duration::from_millis(5)).unwrap();
        assert_eq!(ticks.take().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        std::thread::sleep(Duration::from_millis(30));
        assert!(ticks.take().unwrap() >= 5);
        assert!(Ticks::every(Duration::ZERO).is_err());
    }
}
