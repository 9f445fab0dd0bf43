//! The lab itself: makes nodes and links, and knows them all.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::attest::{Attestation, Processors, overflowed};
use crate::backend::Backends;
use crate::emulator::{Emulator, Order};
use crate::joint::{Emulated, Joint};
use crate::routes::Routes;
use crate::{Backend, LabError, Link, Measures, Node, Options, ping, settings, veth};

/// Nodes have 10.77.0.0/17, the ends of links 10.77.128.0/17.
const MOST_NODES: usize = 0x8000 - 1;
const MOST_LINKS: usize = 0x8000 / 2;

/// Owns nodes and links. Everything is gone when it is dropped, and also when the process dies in whatever way.
#[derive(Debug)]
pub struct Lab {
    /// Made with the first link that needs it.
    emulator: Option<Emulator>,
    backends: Backends,
    /// How many of the settings, the first ones, nodes are given.
    pinned: usize,
    settings: Vec<(String, String)>,
    nodes: Vec<Node>,
    joints: Vec<Joint>,
    /// How many segments there are.
    pub(crate) segments: usize,
    routes: Routes,
    /// When the measures were last reset.
    since: Since,
}

/// What had happened when the measures were last reset.
#[derive(Debug)]
struct Since {
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
            joints: Vec::new(),
            segments: 0,
            routes: Routes::default(),
            since: Since { processors: Processors::now()?, overflowed: 0 },
        })
    }

    /// A new node, linked to none.
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

    /// Joins two nodes. Both, and all nodes that are linked to either, reach each other from now on.
    ///
    /// # Errors
    /// [`LabError::Invalid`] for an impossible link, [`LabError::System`] or [`LabError::Tool`] if the system refused it.
    pub fn link(&mut self, a: &Node, b: &Node, link: &Link) -> Result<Joint, LabError> {
        self.join(a, b, link)?;
        self.routes.write(&self.nodes)?;
        self.joints.last().cloned().ok_or(LabError::Gone)
    }

    /// `hops + 1` new nodes in a row, `n0`, `n1` and so on, each joined to the next by such a link. Every node reaches every other.
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

    /// The links, in the order in which they were made.
    pub fn joints(&self) -> &[Joint] {
        &self.joints
    }

    /// What a record of a measurement should name: what was pinned in all nodes (names below `/proc/sys/net`, and values), and how
    /// the emulator's thread is scheduled once there is one.
    pub fn settings(&self) -> &[(String, String)] {
        &self.settings
    }

    /// Begins all measures anew: those of [`Joint::measures`], [`Lab::measures`] and [`Lab::attest`].
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn reset_measures(&mut self) -> Result<(), LabError> {
        self.since = Since { processors: Processors::now()?, overflowed: self.overflowed()? };
        self.emulator.as_ref().map_or(Ok(()), |emulator| emulator.orders().send(Order::Reset))
    }

    /// What all links of the backend `user` did since the last reset.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn measures(&self) -> Result<Measures, LabError> {
        let orders = self.emulator.as_ref().map(Emulator::orders);
        orders.map_or(Ok(Measures::default()), |orders| orders.measure(None))
    }

    /// How well the lab keeps its word between two nodes: the round trip, measured now by a few dozen small packets, and what
    /// the emulator and the processors did since the last reset. Takes the round trip and some 0.2 s.
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

    /// Packets that overflowed in all nodes since the lab began.
    fn overflowed(&self) -> Result<u64, LabError> {
        let nodes = self.nodes.iter();
        nodes.map(|node| node.run(overflowed)?).sum()
    }

    /// How long a small packet is under way by what was configured.
    fn one_way(&self, from: &Node, to: &Node) -> Result<Duration, LabError> {
        let none = || LabError::NoPath(from.name().to_owned(), to.name().to_owned());
        let path = self.routes.path(from, to).ok_or_else(none)?;
        Ok(path
            .into_iter()
            .map(|(link, there)| self.joints[link].one_way(there, ping::LENGTH))
            .sum())
    }

    fn join(&mut self, a: &Node, b: &Node, link: &Link) -> Result<(), LabError> {
        link.check()?;
        self.check(a, b)?;
        let backend = self.backends.choose(link)?;
        let number = self.joints.len();
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
        self.joints.push(Joint::new(backend, (ends.0.into(), ends.1.into()), link, emulated));
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
        let number = emulator.join(a, b, self.joints.len(), device, link)?;
        Ok(Emulated { number, orders: emulator.orders().clone() })
    }

    pub(crate) fn check(&self, a: &Node, b: &Node) -> Result<(), LabError> {
        if let Some(other) =
            [a, b].into_iter().find(|node| self.nodes.get(node.index()) != Some(*node))
        {
            return Err(LabError::Invalid(format!("{} is no node of this lab", other.name())));
        }
        if a == b {
            return Err(LabError::Invalid(format!("a link from {} to itself", a.name())));
        }
        if self.joints.len() >= MOST_LINKS {
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
