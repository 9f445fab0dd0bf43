//! The node of this home.

use levada_client::control::{self, ControlError, Request};
use levada_core::shell_word;
use levada_home::{Held, Home, HomeError};
use levada_node::UpError;
use serde_json::Value;

use super::checks::permission;
use super::report::Check;

/// The state of this home's node.
pub enum Node {
    /// It answers, with its status.
    Runs(Value),
    /// No node runs; none can start while the lock is held. Its file is missing in a home without a
    /// node.
    Absent { held: Option<Held> },
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
        match levada_node::check::lock(home) {
            Ok(held) => (Self::Absent { held }, Self::socket(home)),
            Err(error) => (Self::Broken, Self::without_lock(home, &error)),
        }
    }

    /// The socket that an earlier node has left.
    fn socket(home: &Home) -> Check {
        let socket = home.control_socket();
        match levada_node::check::socket(home) {
            Err(error) => {
                let path = shell_word(&socket.display().to_string()).into_owned();
                let remedy = format!(
                    "`mv {path} {path}.other`, if it exists; this user must be able to write to its folder"
                );
                Check::wrong("node", error, remedy)
            }
            Ok(()) if socket.exists() => {
                let text = "not running; it was killed, and its socket still exists";
                Check::note("node", text, "the next `levada up` replaces it")
            }
            Ok(()) => Check::fine("node", "not running"),
        }
    }

    fn without_lock(home: &Home, error: &UpError) -> Check {
        if let Err(HomeError::Locked { process: Some(process), .. }) = home.hold() {
            let text = format!("process {process} holds the lock and does not answer");
            let remedy = format!("wait a moment if it is starting; else `kill {process}`");
            return Check::wrong("node", text, remedy);
        }
        match permission::to_use(&home.lock_file()) {
            Some(missing) => Check::wrong("node", missing.text, missing.remedy),
            None => {
                let path = shell_word(&home.lock_file().display().to_string()).into_owned();
                Check::wrong("node", error, format!("`mv {path} {path}.other`, if it exists"))
            }
        }
    }
}
