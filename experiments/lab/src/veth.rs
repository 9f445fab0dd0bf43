//! Pairs of virtual Ethernet devices.

use crate::{LabError, Node};

/// A pair called `device` on both sides, down yet.
pub(crate) fn join(a: &Node, b: &Node, device: &str, mtu: u32) -> Result<(), LabError> {
    let there = b.thread();
    a.batch(
        "ip",
        &format!(
            "link add {device} mtu {mtu} type veth peer name {device} mtu {mtu} netns {there}\n"
        ),
    )
}
