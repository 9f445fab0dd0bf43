//! The open handshakes of other sides, counted in all and for each source.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::config::QuicOptions;
use super::socket::Unvalidated;

/// What to do with a new handshake.
#[derive(Debug)]
pub(super) enum Admission {
    /// It may begin. The guard counts it while it exists.
    Begin(OpenHandshake),
    /// The address must be validated first.
    Validate,
    /// There are too many.
    Refuse,
}

/// Counts open handshakes.
#[derive(Clone, Debug)]
pub(super) struct Handshakes {
    options: QuicOptions,
    counts: Arc<Mutex<Counts>>,
    addresses: Arc<Unvalidated>,
}

#[derive(Debug, Default)]
struct Counts {
    open: usize,
    unvalidated: usize,
    by_source: HashMap<IpAddr, usize>,
}

/// A handshake that is counted.
#[derive(Debug)]
pub(super) struct OpenHandshake {
    counts: Arc<Mutex<Counts>>,
    addresses: Arc<Unvalidated>,
    address: SocketAddr,
    unvalidated: bool,
}

impl Handshakes {
    /// The socket limits what the addresses in `addresses` get.
    pub(super) fn new(options: QuicOptions, addresses: Arc<Unvalidated>) -> Self {
        Self { options, counts: Arc::default(), addresses }
    }

    /// Decides about a handshake from `address`.
    pub(super) fn admit(&self, address: SocketAddr, validated: bool) -> Admission {
        let source = source(address.ip());
        let mut counts = lock(&self.counts);
        let of_source = counts.by_source.get(&source).copied().unwrap_or_default();
        let full = counts.open >= self.options.handshakes
            || of_source >= self.options.handshakes_per_source;
        if !validated && (full || counts.unvalidated >= self.options.unvalidated) {
            return Admission::Validate;
        }
        if full {
            return Admission::Refuse;
        }
        counts.open += 1;
        counts.unvalidated += usize::from(!validated);
        *counts.by_source.entry(source).or_default() += 1;
        drop(counts);
        if !validated {
            self.addresses.add(address);
        }
        Admission::Begin(OpenHandshake {
            counts: self.counts.clone(),
            addresses: self.addresses.clone(),
            address,
            unvalidated: !validated,
        })
    }
}

impl OpenHandshake {
    /// The address is validated now.
    pub(super) fn validated(&mut self) {
        if std::mem::take(&mut self.unvalidated) {
            lock(&self.counts).unvalidated -= 1;
            self.addresses.remove(self.address);
        }
    }
}

impl Drop for OpenHandshake {
    fn drop(&mut self) {
        self.validated();
        let source = source(self.address.ip());
        let mut counts = lock(&self.counts);
        counts.open -= 1;
        if let Some(count) = counts.by_source.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                counts.by_source.remove(&source);
            }
        }
    }
}

fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The source of an address: networks assign 64 bits of an IPv6 address to a host at will.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handshakes(
        handshakes: usize,
        handshakes_per_source: usize,
        unvalidated: usize,
    ) -> Handshakes {
        let options = QuicOptions::default();
        let options = QuicOptions { handshakes, handshakes_per_source, unvalidated, ..options };
        Handshakes::new(options, Arc::default())
    }

    fn address(last: u8) -> SocketAddr {
        ([192, 0, 2, last], 5000).into()
    }

    #[test]
    fn unvalidated_addresses_beyond_the_limit_must_be_validated() {
        let all = handshakes(10, 10, 2);
        let first = all.admit(address(1), false);
        let Admission::Begin(mut second) = all.admit(address(2), false) else { panic!() };
        assert!(matches!(first, Admission::Begin(_)));
        assert!(matches!(all.admit(address(3), false), Admission::Validate));
        assert!(matches!(all.admit(address(3), true), Admission::Begin(_)));
        second.validated();
        assert!(matches!(all.admit(address(3), false), Admission::Begin(_)));
        drop(first);
        assert_eq!(lock(&all.counts).open, 1);
    }

    #[test]
    fn one_source_cannot_take_all_handshakes() {
        let all = handshakes(4, 2, 4);
        let _held: Vec<_> = (0..2).map(|_| all.admit(address(1), true)).collect();
        assert!(matches!(all.admit(address(1), true), Admission::Refuse));
        assert!(matches!(all.admit(address(1), false), Admission::Validate));
        let _other = all.admit(address(2), true);
        let _last = all.admit(address(3), true);
        assert!(matches!(all.admit(address(4), true), Admission::Refuse));
    }

    #[test]
    fn an_ended_handshake_leaves_nothing_behind() {
        let all = handshakes(4, 2, 4);
        drop((0..4).map(|last| all.admit(address(last), false)).collect::<Vec<_>>());
        let counts = lock(&all.counts);
        assert_eq!((counts.open, counts.unvalidated, counts.by_source.len()), (0, 0, 0));
    }

    #[test]
    fn hosts_of_one_ipv6_network_are_one_source() {
        let of = |text: &str| source(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
