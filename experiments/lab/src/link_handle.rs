//! A link of a lab.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::emulator::{Order, Orders, time_of};
use crate::{Backend, Change, LabError, Link, Measures};

/// A link between two nodes of a lab. Clones refer to the same link.
#[derive(Clone, Debug)]
pub struct LinkHandle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    backend: Backend,
    addresses: (IpAddr, IpAddr),
    link: Mutex<Link>,
    emulated: Option<Emulated>,
}

/// The emulator's number of the link, and its queue of orders.
#[derive(Debug)]
pub(crate) struct Emulated {
    pub(crate) number: usize,
    pub(crate) orders: Orders,
}

impl LinkHandle {
    pub(crate) fn new(
        backend: Backend,
        addresses: (IpAddr, IpAddr),
        link: &Link,
        emulated: Option<Emulated>,
    ) -> Self {
        let link = Mutex::new(link.clone());
        Self { shared: Arc::new(Shared { backend, addresses, link, emulated }) }
    }

    /// The backend that emulates it.
    pub fn backend(&self) -> Backend {
        self.shared.backend
    }

    /// The addresses of its two ends, in the order of the nodes. Use [`crate::Node::address`]
    /// unless there are several links between two nodes.
    pub fn addresses(&self) -> (IpAddr, IpAddr) {
        self.shared.addresses
    }

    /// Its packet counters and lateness since the last [`crate::Lab::reset_measures`].
    ///
    /// # Errors
    /// [`LabError::Backend`] if the backend is not `user`, which alone has measures.
    /// [`LabError::Gone`].
    pub fn measures(&self) -> Result<Measures, LabError> {
        let Emulated { number, orders } = self.emulated()?;
        orders.measure(Some(*number))
    }

    /// Changes both directions, from the next packet on.
    ///
    /// # Errors
    /// [`LabError::Backend`] if the backend is not `user`, [`LabError::Invalid`] for an invalid
    /// value, [`LabError::Gone`].
    pub fn change(&self, change: &Change) -> Result<(), LabError> {
        let Emulated { number, orders } = self.emulated()?;
        let mut link = self.link();
        let changed = link.changed(change);
        changed.check()?;
        orders.send(Order::Change(*number, change.clone()))?;
        *link = changed;
        Ok(())
    }

    /// Restarts the schedule of both directions.
    ///
    /// # Errors
    /// [`LabError::Backend`] if the backend is not `user`, [`LabError::Gone`].
    pub fn restart_schedule(&self) -> Result<(), LabError> {
        let Emulated { number, orders } = self.emulated()?;
        orders.send(Order::RestartSchedule(*number))
    }

    /// The configured one-way time of a packet of this length, forward if `there`, without the
    /// schedule.
    pub(crate) fn one_way(&self, there: bool, bytes: u64) -> Duration {
        let link = self.link();
        let link = if there { &*link } else { link.back() };
        let transmission = link.rate.map_or(0, |rate| time_of(bytes, rate));
        link.delay + Duration::from_nanos(transmission)
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.shared.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn emulated(&self) -> Result<&Emulated, LabError> {
        self.shared.emulated.as_ref().ok_or_else(|| LabError::Backend {
            backend: self.shared.backend,
            reason: "it has no measures and cannot be changed: choose `user`".to_owned(),
        })
    }
}
