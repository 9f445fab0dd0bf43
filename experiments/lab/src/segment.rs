//! An Ethernet segment: a bridge in its own namespace, and a veth pair to each node.

use std::net::{IpAddr, Ipv4Addr};

use crate::backend::discipline;
use crate::{Backend, Lab, LabError, Link, Node};

/// Segments have addresses in 10.78.0.0/16, each a /24.
const MOST_SEGMENTS: usize = 256;
const MOST_MEMBERS: usize = 254;
/// The MTU of an Ethernet.
const MTU: u32 = 1500;

/// An Ethernet segment of a lab, with broadcast and multicast.
#[derive(Clone, Debug)]
pub struct Segment {
    number: u8,
    /// The members' indices in the lab, in the order of their addresses.
    members: Vec<usize>,
}

impl Segment {
    /// The address of a node on this segment; `None` if it is not a member.
    pub fn address(&self, node: &Node) -> Option<IpAddr> {
        let position = self.members.iter().position(|member| *member == node.index())?;
        Some(numbered(self.number, position).into())
    }
}

impl Lab {
    /// Joins nodes by an Ethernet segment, a bridge without emulation.
    ///
    /// # Errors
    /// [`LabError::Invalid`] for too many nodes, [`LabError::System`] or [`LabError::Tool`] if the system refused it.
    pub fn segment(&mut self, nodes: &[&Node]) -> Result<Segment, LabError> {
        self.ethernet(nodes, None)
    }

    /// As [`Self::segment`], with this rate between each node and the bridge, in each direction, in bits per second as [`Link::rate`] counts
    /// them. The kernel's token bucket (`tbf`) limits it.
    ///
    /// # Errors
    /// As [`Self::segment`]; [`LabError::Tool`] if the kernel has no token bucket.
    pub fn star(&mut self, nodes: &[&Node], rate: u64) -> Result<Segment, LabError> {
        self.ethernet(nodes, discipline(Backend::Tbf, &Link::new().rate(rate), MTU))
    }

    fn ethernet(&mut self, nodes: &[&Node], rate: Option<String>) -> Result<Segment, LabError> {
        let number = self.segments;
        if number >= MOST_SEGMENTS || nodes.len() > MOST_MEMBERS {
            let text = format!("at most {MOST_SEGMENTS} segments of {MOST_MEMBERS} nodes each");
            return Err(LabError::Invalid(text));
        }
        let bridge = self.node(&format!("bridge {number}"))?;
        let add = "link add name br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0";
        bridge.batch("ip", &format!("{add}\nlink set br0 up\n"))?;
        let number = u8::try_from(number).unwrap_or(u8::MAX);
        for (position, node) in nodes.iter().enumerate() {
            self.check(node, &bridge)?;
            let (device, port, there) =
                (format!("e{number}"), format!("p{position}"), bridge.thread());
            let own = numbered(number, position);
            let pair = format!("link add {device} type veth peer name {port} netns {there}");
            let up = format!("address add {own}/24 brd + dev {device}\nlink set {device} up");
            node.batch("ip", &format!("{pair}\n{up}\n"))?;
            bridge.batch("ip", &format!("link set {port} master br0 up\n"))?;
            if let Some(rate) = &rate {
                node.batch("tc", &format!("qdisc add dev {device} root {rate}\n"))?;
                bridge.batch("tc", &format!("qdisc add dev {port} root {rate}\n"))?;
            }
        }
        self.segments += 1;
        Ok(Segment { number, members: nodes.iter().map(|node| node.index()).collect() })
    }
}

/// The address of the member at this position.
fn numbered(segment: u8, position: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, segment, u8::try_from(1 + position).unwrap_or(u8::MAX))
}
