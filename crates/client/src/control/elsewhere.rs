//! Nodes of other homes on this machine, found by their control sockets.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use levada_home::{CONTROL_SOCKET, Home};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Request, send};

/// The kernel's list of the Unix sockets of this network namespace (proc_pid_net(5)).
const SOCKETS: &str = "/proc/net/unix";
/// The number of fields before the path in a line of this list.
const FIELDS: usize = 7;
/// The maximum number of sockets that are asked.
const MAX_NODES: usize = 64;
/// The time in which a node must answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// A running node of another home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeElsewhere {
    /// The name of the node.
    pub name: String,
    /// The number of its process.
    pub process: u64,
    /// The value of `LEVADA_HOME` for its home; `None` if the home is in the XDG folders.
    pub home: Option<PathBuf>,
}

/// Returns the running nodes of other homes of this user, for root of all users, ordered by name.
/// A node that does not answer within a second is left out.
pub async fn nodes_elsewhere(home: &Home) -> Vec<NodeElsewhere> {
    let own = home.node_socket();
    let list = fs::read_to_string(SOCKETS).unwrap_or_default();
    let sockets: BTreeSet<PathBuf> =
        control_sockets(&list).filter(|path| *path != own && is_permitted(path)).collect();
    let mut asked = JoinSet::new();
    for socket in sockets.into_iter().take(MAX_NODES) {
        asked.spawn(ask(socket));
    }
    let mut nodes: Vec<_> = asked.join_all().await.into_iter().flatten().collect();
    nodes.sort_by(|one, other| (&one.name, one.process).cmp(&(&other.name, other.process)));
    nodes
}

/// The absolute paths of control sockets in the kernel's list.
fn control_sockets(list: &str) -> impl Iterator<Item = PathBuf> {
    let paths = list.lines().skip(1).filter_map(|line| {
        let mut rest = line;
        for _ in 0..FIELDS {
            rest = rest.trim_start().split_once(' ')?.1;
        }
        Some(Path::new(rest))
    });
    let named = paths.filter(|path| path.is_absolute() && path.ends_with(CONTROL_SOCKET));
    named.map(Path::to_owned)
}

/// Returns true if the socket belongs to this user, or this user is root.
fn is_permitted(path: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(path)
        .is_ok_and(|found| found.file_type().is_socket() && (found.uid() == user || user == 0))
}

async fn ask(socket: PathBuf) -> Option<NodeElsewhere> {
    let asked = timeout(ANSWER_TIMEOUT, send(socket, &Request::Status));
    node_of(&asked.await.ok()?.ok()?.0)
}

fn node_of(status: &Value) -> Option<NodeElsewhere> {
    let state = Path::new(status["home"].as_str()?);
    let configuration = Path::new(status["configuration"].as_str()?);
    let is_one_folder = configuration.parent() == Some(state);
    Some(NodeElsewhere {
        name: status["name"].as_str()?.to_owned(),
        process: status["process"].as_u64()?,
        home: is_one_folder.then(|| state.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn control_sockets_are_found_by_their_name() {
        let list = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 4012 /run/user/0/bus\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 4013 /a b/run/control.sock\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 4014\n\
            0000000000000000: 00000003 00000000 00010000 0001 01 4015 @/x/control.sock\n\
            0000000000000000: 00000003 00000000 00010000 0001 01 4016 control.sock\n";
        let found: Vec<_> = control_sockets(list).collect();
        assert_eq!(found, [Path::new("/a b/run/control.sock")]);
    }

    #[test]
    fn a_home_in_the_xdg_folders_has_no_variable() {
        let status = |configuration: &str| json!({ "name": "n", "process": 1, "home": "/h", "configuration": configuration });
        let home = |configuration: &str| node_of(&status(configuration)).unwrap().home;
        assert_eq!(home("/h/config.toml").as_deref(), Some(Path::new("/h")));
        assert_eq!(home("/c/config.toml"), None);
        assert_eq!(node_of(&json!({ "name": "of an older version", "process": 1 })), None);
    }
}
