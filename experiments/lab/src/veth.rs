//! Pairs of virtual Ethernet devices, with or without a queueing discipline at each end.

use crate::backend::discipline;
use crate::{Backend, LabError, Link, Node};

/// Creates a pair called `device` on both sides; the devices are still down.
pub(crate) fn join(
    a: &Node,
    b: &Node,
    device: &str,
    link: &Link,
    backend: Backend,
) -> Result<(), LabError> {
    let mtu = link.mtu_or_default();
    let there = b.thread();
    let peer = format!("peer name {device} mtu {mtu} netns {there}");
    a.batch("ip", &format!("link add {device} mtu {mtu} type veth {peer}\n"))?;
    if backend == Backend::Bare {
        return Ok(());
    }
    for (node, direction) in [(a, link), (b, link.back())] {
        if let Some(discipline) = discipline(backend, direction, mtu) {
            node.batch("tc", &format!("qdisc add dev {device} root {discipline}\n"))?;
        }
    }
    Ok(())
}
