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
    bridge: Node,
    /// What limits the rate of each link in each direction.
    limiter: Option<String>,
}

impl Segment {
    /// The address of a node on this segment; `None` if it is not a member.
    pub fn address(&self, node: &Node) -> Option<IpAddr> {
        let position = self.members.iter().position(|member| *member == node.index())?;
        Some(numbered(self.number, position).into())
    }

    /// Changes the rate from a member to the bridge, in bits per second as [`Link::rate`] counts
    /// them.
    ///
    /// # Errors
    /// [`LabError::Invalid`] if it is no member, [`LabError::Tool`] if the kernel has no token
    /// bucket.
    pub fn limit_uplink(&self, node: &Node, rate: u64) -> Result<(), LabError> {
        let (device, _) = self.devices(node)?;
        let limiter = limiter(rate).unwrap_or_default();
        node.batch("tc", &format!("qdisc replace dev {device} root {limiter}\n"))
    }

    /// Drops the first packet of each connection over TCP to a member, as a router with address
    /// translation does.
    ///
    /// # Errors
    /// [`LabError::Invalid`] if it is no member, [`LabError::Tool`] if the kernel has no filter
    /// `u32` or no action `mirred`.
    pub fn refuse_connections(&self, node: &Node) -> Result<(), LabError> {
        let (device, _) = self.devices(node)?;
        // What is redirected there reaches no address.
        let sink = "link add sink0 type veth peer name sink1\nlink set sink0 up\nlink set sink1 up";
        node.batch("ip", &format!("{sink}\n"))?;
        // The flag SYN without ACK, behind an IP header without options.
        let first = "ip protocol 6 0xff match u8 0x02 0x12 at 33";
        let filter = format!("filter add dev {device} parent ffff: protocol ip u32 match {first}");
        let drop = "action mirred egress redirect dev sink0";
        node.batch("tc", &format!("qdisc add dev {device} ingress\n{filter} {drop}\n"))
    }

    /// Drops all packets from and to a member, until it is called with `is_cut` false.
    ///
    /// # Errors
    /// [`LabError::Invalid`] if it is no member, [`LabError::Tool`] if the kernel cannot do it.
    pub fn cut(&self, node: &Node, is_cut: bool) -> Result<(), LabError> {
        let (device, port) = self.devices(node)?;
        let usual = self.limiter.as_deref().unwrap_or("pfifo");
        let discipline = if is_cut { "blackhole" } else { usual };
        for (node, device) in [(node, device), (&self.bridge, port)] {
            node.batch("tc", &format!("qdisc replace dev {device} root {discipline}\n"))?;
        }
        Ok(())
    }

    /// The devices at both ends of a member's link: at the member, and at the bridge.
    fn devices(&self, node: &Node) -> Result<(String, String), LabError> {
        let position = self.members.iter().position(|member| *member == node.index());
        let invalid = || LabError::Invalid(format!("{} is not on the segment", node.name()));
        position.map(|position| devices(self.number, position)).ok_or_else(invalid)
    }
}

impl Lab {
    /// Joins nodes by an Ethernet segment, a bridge without emulation.
    ///
    /// # Errors
    /// [`LabError::Invalid`] for too many nodes, [`LabError::System`] or [`LabError::Tool`] if the
    /// system refused it.
    pub fn segment(&mut self, nodes: &[&Node]) -> Result<Segment, LabError> {
        self.ethernet(nodes, None)
    }

    /// As [`Self::segment`], with this rate between each node and the bridge, in each direction, in
    /// bits per second as [`Link::rate`] counts them. The kernel's token bucket (`tbf`) limits it.
    ///
    /// # Errors
    /// As [`Self::segment`]; [`LabError::Tool`] if the kernel has no token bucket.
    pub fn star(&mut self, nodes: &[&Node], rate: u64) -> Result<Segment, LabError> {
        self.ethernet(nodes, limiter(rate))
    }

    fn ethernet(&mut self, nodes: &[&Node], limiter: Option<String>) -> Result<Segment, LabError> {
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
            let (device, port) = devices(number, position);
            let there = bridge.thread();
            let own = numbered(number, position);
            let pair = format!("link add {device} type veth peer name {port} netns {there}");
            let up = format!("address add {own}/24 brd + dev {device}\nlink set {device} up");
            node.batch("ip", &format!("{pair}\n{up}\n"))?;
            bridge.batch("ip", &format!("link set {port} master br0 up\n"))?;
            if let Some(limiter) = &limiter {
                node.batch("tc", &format!("qdisc add dev {device} root {limiter}\n"))?;
                bridge.batch("tc", &format!("qdisc add dev {port} root {limiter}\n"))?;
            }
        }
        self.segments += 1;
        let members = nodes.iter().map(|node| node.index()).collect();
        Ok(Segment { number, members, bridge, limiter })
    }
}

/// The names of a link's devices: at the member with this position, and at the bridge.
fn devices(segment: u8, position: usize) -> (String, String) {
    (format!("e{segment}"), format!("p{position}"))
}

/// The token bucket for this rate in bits per second.
fn limiter(rate: u64) -> Option<String> {
    discipline(Backend::Tbf, &Link::new().rate(rate), MTU)
}

/// The address of the member at this position.
fn numbered(segment: u8, position: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, segment, u8::try_from(1 + position).unwrap_or(u8::MAX))
}
