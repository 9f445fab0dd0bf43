//! The node of this home.

use levada_client::home::{Home, HomeError, Lock};
use levada_node::control::{self, ControlError, Request};
use serde_json::Value;

use super::checks::permission;
use super::report::Check;

/// The state of this home's node.
pub enum Node {
    /// It answers, with its status.
    Runs(Value),
    /// No node runs; none can start while the lock is held.
    Absent { _lock: Lock },
    /// A process holds the lock and does not answer, or the lock cannot be taken.
    Broken,
}

impl Node {
    /// The node of `home`, and whether it works.
    pub async fn find(home: &Home) -> (Self, Check) {
        match control::call(home, &Request::Status).await {
            Ok(status) => {
                let text = format!("runs as process {}", status["process"]);
                (Self::Runs(status), Check::fine("node", text))
            }
            Err(ControlError::NotRunning) => Self::without_socket(home),
            Err(error) => {
                let remedy = "see its log, and start it again";
                (Self::Broken, Check::wrong("node", error, remedy))
            }
        }
    }

    fn without_socket(home: &Home) -> (Self, Check) {
        match home.lock() {
            Ok(lock) if home.control_socket().exists() => {
                let text = "not running; it was killed, and its socket still exists";
                (
                    Self::Absent { _lock: lock },
                    Check::note("node", text, "the next `levada up` replaces it"),
                )
            }
            Ok(lock) => (Self::Absent { _lock: lock }, Check::fine("node", "not running")),
            Err(HomeError::Locked { process: Some(process), .. }) => {
                let text = format!("process {process} holds the lock and does not answer");
                let remedy = format!("wait a moment if it is starting; else `kill {process}`");
                (Self::Broken, Check::wrong("node", text, remedy))
            }
            Err(error) => match permission::to_use(&home.lock_file()) {
                Some(missing) => (Self::Broken, Check::wrong("node", missing.text, missing.remedy)),
                None => (Self::Broken, Check::wrong("node", error, "")),
            },
        }
    }
}
