//! A link that was made.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::emulator::{Order, Orders, time_of};
use crate::{Backend, Change, LabError, Link, Measures};

/// One link between two nodes of a lab. Clones are the same link.
#[derive(Clone, Debug)]
pub struct Joint {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    backend: Backend,
    addresses: (IpAddr, IpAddr),
    link: Mutex<Link>,
    emulated: Option<Emulated>,
}

/// The link as the emulator knows it.
#[derive(Debug)]
pub(crate) struct Emulated {
    pub(crate) number: usize,
    pub(crate) orders: Orders,
}

impl Joint {
    pub(crate) fn new(
        backend: Backend,
        addresses: (IpAddr, IpAddr),
        link: &Link,
        emulated: Option<Emulated>,
    ) -> Self {
        let link = Mutex::new(link.clone());
        Self { shared: Arc::new(Shared { backend, addresses, link, emulated }) }
    }

    /// What emulates it.
    pub fn backend(&self) -> Backend {
        self.shared.backend
    }

    /// The addresses of its two ends, in the order in which the nodes were given. [`crate::Node::address`] is what you want unless
    /// nodes have several links between them.
    pub fn addresses(&self) -> (IpAddr, IpAddr) {
        self.shared.addresses
    }

    /// What it did to packets, and how late it was, since the last [`crate::Lab::reset_measures`].
    ///
    /// # Errors
    /// [`LabError::Backend`] if the backend is not `user`: others measure nothing. [`LabError::Gone`].
    pub fn measures(&self) -> Result<Measures, LabError> {
        let Emulated { number, orders } = self.emulated()?;
        orders.measure(Some(*number))
    }

    /// Changes both directions, from the next packet on.
    ///
    /// # Errors
    /// [`LabError::Backend`] if the backend is not `user`, [`LabError::Invalid`] for an impossible value, [`LabError::Gone`].
    pub fn change(&self, change: &Change) -> Result<(), LabError> {
        let Emulated { number, orders } = self.emulated()?;
        let mut link = self.link();
        let changed = link.changed(change);
        changed.check()?;
        orders.send(Order::Change(*number, change.clone()))?;
        *link = changed;
        Ok(())
    }

    /// Begins the schedule of both directions anew.
    ///
    /// # Errors
    /// [`LabError::Backend`] if the backend is not `user`, [`LabError::Gone`].
    pub fn restart_schedule(&self) -> Result<(), LabError> {
        let Emulated { number, orders } = self.emulated()?;
        orders.send(Order::RestartSchedule(*number))
    }

    /// How long a packet of so many bytes is under way, `there` or back, by what was configured; its schedule left aside.
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
            reason: "it measures nothing and follows no changes: choose `user`".to_owned(),
        })
    }
}
