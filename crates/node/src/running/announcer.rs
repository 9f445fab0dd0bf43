//! The announcement of the node by multicast DNS.

use levada_discovery::{Announcement, Announcer};

use crate::node::Node;

/// Announces the node. A failure, as on a network without multicast, becomes a note.
pub(super) fn start(node: &Node, notes: &mut Vec<String>) -> Option<Announcer> {
    let announcement = Announcement {
        name: node.name.clone(),
        identity: node.identity(),
        listening: node.network.listening.clone(),
    };
    match Announcer::start(announcement) {
        Ok(announcer) => Some(announcer),
        Err(error) => {
            notes.push(format!(
                "this node is not announced, and is found by IDENTITY@host:port only: {error}"
            ));
            None
        }
    }
}
