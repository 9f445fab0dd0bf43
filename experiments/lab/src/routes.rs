//! Routing: shortest paths by the number of links between all nodes.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write;
use std::net::Ipv4Addr;

use crate::{LabError, Node};

/// The graph of links, and the routes set in the nodes.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    /// The links of each node.
    steps: HashMap<usize, Vec<Step>>,
    /// (from, to) → the first link of the path.
    written: HashMap<(usize, usize), usize>,
}

/// One link, seen from one of its ends.
#[derive(Clone, Debug)]
struct Step {
    link: usize,
    /// From the link's first end to its second.
    there: bool,
    to: usize,
    gateway: Ipv4Addr,
    device: String,
}

impl Routes {
    /// A new link between two nodes, with the addresses of its ends.
    pub(crate) fn join(
        &mut self,
        a: &Node,
        b: &Node,
        link: usize,
        device: &str,
        ends: (Ipv4Addr, Ipv4Addr),
    ) {
        for (from, to, gateway, there) in [(a, b, ends.1, true), (b, a, ends.0, false)] {
            let step = Step { link, there, to: to.index(), gateway, device: device.to_owned() };
            self.steps.entry(from.index()).or_default().push(step);
        }
    }

    /// Sets the new and changed routes in the nodes.
    pub(crate) fn write(&mut self, nodes: &[Node]) -> Result<(), LabError> {
        for node in nodes {
            let mut lines = String::new();
            for (to, step) in self.first_steps(node.index()) {
                if self.written.insert((node.index(), to), step.link) == Some(step.link) {
                    continue;
                }
                let target = nodes[to].ipv4();
                let own = node.ipv4();
                let Step { gateway, device, .. } = step;
                let _ =
                    writeln!(lines, "route replace {target} via {gateway} dev {device} src {own}");
            }
            if !lines.is_empty() {
                node.batch("ip", &lines)?;
            }
        }
        Ok(())
    }

    /// The links from one node to another, in order, each with `true` if it is used from its first
    /// end to its second. `None` if there is no path.
    pub(crate) fn path(&self, from: &Node, to: &Node) -> Option<Vec<(usize, bool)>> {
        let mut path = Vec::new();
        let mut here = from.index();
        while here != to.index() {
            let link = *self.written.get(&(here, to.index()))?;
            let step = self.steps.get(&here)?.iter().find(|step| step.link == link)?;
            path.push((link, step.there));
            here = step.to;
        }
        Some(path)
    }

    /// The first step to every reachable node (breadth-first search, older links first).
    fn first_steps(&self, from: usize) -> Vec<(usize, Step)> {
        let mut found: HashMap<usize, Step> = HashMap::new();
        let mut order = Vec::new();
        let mut next = VecDeque::from([from]);
        while let Some(here) = next.pop_front() {
            for step in self.steps.get(&here).into_iter().flatten() {
                if step.to == from || found.contains_key(&step.to) {
                    continue;
                }
                let first = found.get(&here).unwrap_or(step).clone();
                found.insert(step.to, first.clone());
                order.push((step.to, first));
                next.push_back(step.to);
            }
        }
        order
    }
}
