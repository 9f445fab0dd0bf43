//! One Ethernet for many nodes: a bridge in a namespace of its own, and a pair of virtual devices to each node.

use std::net::{IpAddr, Ipv4Addr};

use crate::{Lab, LabError, Node};

/// Segments have 10.78.0.0/16, each one /24 of it.
const MOST_SEGMENTS: usize = 256;
const MOST_MEMBERS: usize = 254;

/// An Ethernet that was made. What one of its nodes sends to all reaches all others, so multicast works there.
#[derive(Clone, Debug)]
pub struct Segment {
    number: u8,
    /// Their indices within the lab, in the order of their addresses.
    members: Vec<usize>,
}

impl Segment {
    /// The address of a node on this Ethernet, which is the one by which neighbours reach it; `None` if it is not on it.
    pub fn address(&self, node: &Node) -> Option<IpAddr> {
        let place = self.members.iter().position(|member| *member == node.index())?;
        Some(numbered(self.number, place).into())
    }
}

impl Lab {
    /// Joins nodes by one Ethernet, through a bridge that neither delays nor loses nor filters anything.
    ///
    /// # Errors
    /// [`LabError::Invalid`] for too many, [`LabError::System`] or [`LabError::Tool`] if the system refused it.
    pub fn segment(&mut self, nodes: &[&Node]) -> Result<Segment, LabError> {
        let number = self.segments;
        if number >= MOST_SEGMENTS || nodes.len() > MOST_MEMBERS {
            let text = format!("at most {MOST_SEGMENTS} segments of {MOST_MEMBERS} nodes each");
            return Err(LabError::Invalid(text));
        }
        let bridge = self.node(&format!("bridge {number}"))?;
        let add = "link add name br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0";
        bridge.batch("ip", &format!("{add}\nlink set br0 up\n"))?;
        let number = u8::try_from(number).unwrap_or(u8::MAX);
        for (place, node) in nodes.iter().enumerate() {
            self.check(node, &bridge)?;
            let (device, port, there) =
                (format!("e{number}"), format!("p{place}"), bridge.thread());
            let own = numbered(number, place);
            let pair = format!("link add {device} type veth peer name {port} netns {there}");
            let up = format!("address add {own}/24 brd + dev {device}\nlink set {device} up");
            node.batch("ip", &format!("{pair}\n{up}\n"))?;
            bridge.batch("ip", &format!("link set {port} master br0 up\n"))?;
        }
        self.segments += 1;
        Ok(Segment { number, members: nodes.iter().map(|node| node.index()).collect() })
    }
}

/// The address of the node in this place.
fn numbered(segment: u8, place: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, segment, u8::try_from(1 + place).unwrap_or(u8::MAX))
}
