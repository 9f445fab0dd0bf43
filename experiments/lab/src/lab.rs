//! The lab, which creates and owns nodes and links.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::attest::{Attestation, Processors, overflowed};
use crate::backend::Backends;
use crate::emulator::{Emulator, Order};
use crate::link_handle::{Emulated, LinkHandle};
use crate::routes::Routes;
use crate::{Backend, LabError, Link, Measures, Node, Options, ping, settings, veth};

/// Nodes have addresses in 10.77.0.0/17, ends of links in 10.77.128.0/17.
const MOST_NODES: usize = 0x8000 - 1;
const MOST_LINKS: usize = 0x8000 / 2;

/// Owns nodes and links. Everything is removed when it is dropped, and also when the process is
/// killed.
#[derive(Debug)]
pub struct Lab {
    /// Started with the first link that needs it.
    emulator: Option<Emulator>,
    backends: Backends,
    /// How many of the first settings are applied to nodes.
    pinned: usize,
    settings: Vec<(String, String)>,
    nodes: Vec<Node>,
    links: Vec<LinkHandle>,
    /// The number of segments.
    pub(crate) segments: usize,
    routes: Routes,
    /// The counters at the last reset of the measures.
    since: Baseline,
}

/// The counters at the last reset of the measures.
#[derive(Debug)]
struct Baseline {
    processors: Processors,
    overflowed: u64,
}

impl Lab {
    /// An empty lab.
    ///
    /// # Errors
    /// [`LabError::NotRoot`].
    pub fn new(options: Options) -> Result<Self, LabError> {
        if !rustix::process::geteuid().is_root() {
            return Err(LabError::NotRoot);
        }
        let settings = settings::settings(&options)?;
        Ok(Self {
            emulator: None,
            backends: Backends::new(options.backend),
            pinned: settings.len(),
            settings,
            nodes: Vec::new(),
            links: Vec::new(),
            segments: 0,
            routes: Routes::default(),
            since: Baseline { processors: Processors::now()?, overflowed: 0 },
        })
    }

    /// Creates a node without links.
    ///
    /// # Errors
    /// [`LabError::System`] or [`LabError::Tool`] if the namespace could not be made or set up.
    pub fn node(&mut self, name: &str) -> Result<Node, LabError> {
        let index = self.nodes.len();
        if index >= MOST_NODES {
            return Err(LabError::Invalid(format!("a lab has at most {MOST_NODES} nodes")));
        }
        let node = Node::new(name, index, numbered(1 + index))?;
        let set_up = format!("link set lo up\naddress add {}/32 dev lo\n", node.ipv4());
        settings::pin(&node, &self.settings[..self.pinned])?;
        node.batch("ip", &set_up)?;
        self.nodes.push(node.clone());
        Ok(node)
    }

    /// Links two nodes, and updates the routes of all nodes.
    ///
    /// # Errors
    /// [`LabError::Invalid`] for an invalid link, [`LabError::System`] or [`LabError::Tool`] if the
    /// system refused it.
    pub fn link(&mut self, a: &Node, b: &Node, link: &Link) -> Result<LinkHandle, LabError> {
        self.join(a, b, link)?;
        self.routes.write(&self.nodes)?;
        self.links.last().cloned().ok_or(LabError::Gone)
    }

    /// Creates a chain of `hops + 1` nodes `n0`, `n1` and so on, each linked to the next. All nodes
    /// reach each other.
    ///
    /// # Errors
    /// As [`Lab::link`].
    pub fn chain(&mut self, hops: usize, link: &Link) -> Result<Vec<Node>, LabError> {
        let nodes =
            (0..=hops).map(|n| self.node(&format!("n{n}"))).collect::<Result<Vec<_>, _>>()?;
        for pair in nodes.windows(2) {
            self.join(&pair[0], &pair[1], link)?;
        }
        self.routes.write(&self.nodes)?;
        Ok(nodes)
    }

    /// The links, in the order of their creation.
    pub fn links(&self) -> &[LinkHandle] {
        &self.links
    }

    /// The settings that a record of a measurement should contain: the pinned settings of all nodes
    /// (names below `/proc/sys/net`, and values), and the scheduling of the emulator's thread once
    /// there is one.
    pub fn settings(&self) -> &[(String, String)] {
        &self.settings
    }

    /// Resets all measures: those of [`LinkHandle::measures`], [`Lab::measures`] and
    /// [`Lab::attest`].
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn reset_measures(&mut self) -> Result<(), LabError> {
        self.since = Baseline { processors: Processors::now()?, overflowed: self.overflowed()? };
        self.emulator.as_ref().map_or(Ok(()), |emulator| emulator.orders().send(Order::Reset))
    }

    /// The measures of all links of the backend `user` since the last reset.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn measures(&self) -> Result<Measures, LabError> {
        let orders = self.emulator.as_ref().map(Emulator::orders);
        orders.map_or(Ok(Measures::default()), |orders| orders.measure(None))
    }

    /// Checks the emulation between two nodes: the round trip, measured now by 31 small packets,
    /// and the state of the emulator and the processors since the last reset. Takes the round trip
    /// and about 0.2 s.
    ///
    /// # Errors
    /// [`LabError::NoPath`], [`LabError::NoEcho`] if no packet came back, [`LabError::System`].
    pub fn attest(&self, a: &Node, b: &Node) -> Result<Attestation, LabError> {
        let idle = Processors::now()?.idle_since(&self.since.processors);
        let configured = self.one_way(a, b)? + self.one_way(b, a)?;
        let measured = ping::median(a, b, configured)?;
        let lateness = self.measures()?.lateness;
        let overflowed = self.overflowed()?.saturating_sub(self.since.overflowed);
        Ok(Attestation::new((a.name(), b.name()), configured, measured, lateness, idle, overflowed))
    }

    /// Packets dropped by full device queues in all nodes since the start of the lab.
    fn overflowed(&self) -> Result<u64, LabError> {
        let nodes = self.nodes.iter();
        nodes.map(|node| node.run(overflowed)?).sum()
    }

    /// The configured one-way delay of a small packet.
    fn one_way(&self, from: &Node, to: &Node) -> Result<Duration, LabError> {
        let none = || LabError::NoPath(from.name().to_owned(), to.name().to_owned());
        let path = self.routes.path(from, to).ok_or_else(none)?;
        Ok(path
            .into_iter()
            .map(|(link, there)| self.links[link].one_way(there, ping::LENGTH))
            .sum())
    }

    fn join(&mut self, a: &Node, b: &Node, link: &Link) -> Result<(), LabError> {
        link.check()?;
        self.check(a, b)?;
        let backend = self.backends.choose(link)?;
        let number = self.links.len();
        let device = format!("l{number}");
        let ends = (numbered(0x8000 + 2 * number), numbered(0x8000 + 2 * number + 1));
        let emulated = match backend {
            Backend::User => Some(self.emulate(a, b, &device, link)?),
            _ => veth::join(a, b, &device, link, backend).map(|()| None)?,
        };
        for (node, own, peer) in [(a, ends.0, ends.1), (b, ends.1, ends.0)] {
            let up = format!("address add {own} peer {peer} dev {device}\nlink set {device} up\n");
            node.batch("ip", &up)?;
        }
        self.routes.join(a, b, number, &device, ends);
        self.links.push(LinkHandle::new(backend, (ends.0.into(), ends.1.into()), link, emulated));
        Ok(())
    }

    fn emulate(
        &mut self,
        a: &Node,
        b: &Node,
        device: &str,
        link: &Link,
    ) -> Result<Emulated, LabError> {
        let emulator = match &mut self.emulator {
            Some(emulator) => emulator,
            none => {
                let emulator = none.insert(Emulator::start()?);
                self.settings.push(("emulator".to_owned(), emulator.scheduling.clone()));
                emulator
            }
        };
        let number = emulator.join(a, b, self.links.len(), device, link)?;
        Ok(Emulated { number, orders: emulator.orders().clone() })
    }

    pub(crate) fn check(&self, a: &Node, b: &Node) -> Result<(), LabError> {
        if let Some(other) =
            [a, b].into_iter().find(|node| self.nodes.get(node.index()) != Some(*node))
        {
            return Err(LabError::Invalid(format!("{} is not a node of this lab", other.name())));
        }
        if a == b {
            return Err(LabError::Invalid(format!("a link from {} to itself", a.name())));
        }
        if self.links.len() >= MOST_LINKS {
            return Err(LabError::Invalid(format!("a lab has at most {MOST_LINKS} links")));
        }
        Ok(())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.emulator = None;
        for node in &self.nodes {
            node.close();
        }
    }
}

/// The address with this number in 10.77.0.0/16.
fn numbered(number: usize) -> Ipv4Addr {
    let [.., high, low] = number.to_be_bytes();
    Ipv4Addr::new(10, 77, high, low)
}
