//! A network lab: nodes are network namespaces, and links between them have a delay, a rate and losses that you choose.
//!
//! ```no_run
//! use std::time::Duration;
//! use levada_lab::{Lab, Link, Options};
//!
//! let mut lab = Lab::new(Options::default())?;
//! let (client, server) = (lab.node("client")?, lab.node("server")?);
//! lab.link(&client, &server, &Link::new().delay(Duration::from_millis(20)))?;
//! let listener = server.run(|| std::net::TcpListener::bind((server.address(), 0)))?;
//! # Ok::<(), levada_lab::LabError>(())
//! ```

mod error;
mod link;
mod node;
mod options;
mod routes;
mod settings;
mod veth;

use std::net::{IpAddr, Ipv4Addr};

pub use error::LabError;
pub use link::{Change, Link, Loss};
pub use node::Node;
pub use options::{Backend, Options};
use routes::Routes;

/// Nodes have 10.77.0.0/17, the ends of links 10.77.128.0/17.
const MOST_NODES: usize = 0x8000 - 1;
const MOST_LINKS: usize = 0x8000 / 2;

/// Owns nodes and links. Everything is gone when it is dropped, and also when the process dies in whatever way.
#[derive(Debug)]
pub struct Lab {
    settings: Vec<(String, String)>,
    nodes: Vec<Node>,
    links: usize,
    routes: Routes,
}

/// One link between two nodes, of those that were made. Clones are the same link.
#[derive(Clone, Debug)]
pub struct Joint {
    backend: Backend,
    addresses: (IpAddr, IpAddr),
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
        Ok(Self { settings, nodes: Vec::new(), links: 0, routes: Routes::default() })
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
        settings::pin(&node, &self.settings)?;
        node.batch("ip", &set_up)?;
        self.nodes.push(node.clone());
        Ok(node)
    }

    /// Joins two nodes. Both, and all nodes that are linked to either, reach each other from now on.
    ///
    /// # Errors
    /// [`LabError::Invalid`] for an impossible link, [`LabError::System`] or [`LabError::Tool`] if the system refused it.
    pub fn link(&mut self, a: &Node, b: &Node, link: &Link) -> Result<Joint, LabError> {
        let joint = self.join(a, b, link)?;
        self.routes.write(&self.nodes)?;
        Ok(joint)
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

    /// What was pinned in all nodes, to print and record: names below `/proc/sys/net`, and values.
    pub fn settings(&self) -> &[(String, String)] {
        &self.settings
    }

    fn join(&mut self, a: &Node, b: &Node, link: &Link) -> Result<Joint, LabError> {
        link.check()?;
        if a.index() == b.index() {
            return Err(LabError::Invalid(format!("a link from {} to itself", a.name())));
        }
        let number = self.links;
        if number >= MOST_LINKS {
            return Err(LabError::Invalid(format!("a lab has at most {MOST_LINKS} links")));
        }
        let ends = (numbered(0x8000 + 2 * number), numbered(0x8000 + 2 * number + 1));
        veth::join(a, b, &device(number), link.mtu_or_default())?;
        address(a, number, ends.0, ends.1)?;
        address(b, number, ends.1, ends.0)?;
        self.links += 1;
        self.routes.join(a, b, &device(number), ends);
        Ok(Joint { backend: Backend::Bare, addresses: (ends.0.into(), ends.1.into()) })
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for node in &self.nodes {
            node.close();
        }
    }
}

impl Joint {
    /// What emulates it.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// The addresses of its two ends, in the order in which the nodes were given. [`Node::address`] is what you want unless nodes
    /// have several links between them.
    pub fn addresses(&self) -> (IpAddr, IpAddr) {
        self.addresses
    }
}

/// The address with this number in 10.77.0.0/16.
fn numbered(number: usize) -> Ipv4Addr {
    let [.., high, low] = number.to_be_bytes();
    Ipv4Addr::new(10, 77, high, low)
}

/// The name of both ends of a link: they are in different namespaces.
fn device(number: usize) -> String {
    format!("l{number}")
}

fn address(node: &Node, number: usize, own: Ipv4Addr, peer: Ipv4Addr) -> Result<(), LabError> {
    let device = device(number);
    node.batch("ip", &format!("address add {own} peer {peer} dev {device}\nlink set {device} up\n"))
}
