//! The entries of the audit log as they are added.

use levada_home::Home;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::{ControlError, MAX_LINE, Request, send};

/// The entries of the audit log that a node sends, one at a time.
pub struct Followed {
    read: BufReader<OwnedReadHalf>,
    /// The node stops sending when this is closed.
    _write: OwnedWriteHalf,
    home: Home,
}

/// Follows the audit log of the node of `home`: `request` is a [`Request::Log`] with `follow`.
///
/// # Errors
/// As for [`super::call`].
pub async fn open(home: &Home, request: &Request) -> Result<Followed, ControlError> {
    let path = home.node_socket();
    let (_, read, mut write) = send(path.clone(), request).await?;
    let asked = write.write_all(b"\n").await;
    asked.map_err(|error| ControlError::Socket { path, text: error.to_string() })?;
    Ok(Followed { read: BufReader::new(read), _write: write, home: home.clone() })
}

impl Followed {
    /// The next entry; `None` when the node has ended.
    ///
    /// # Errors
    /// [`ControlError::Socket`] if what was received is not an entry.
    pub async fn next(&mut self) -> Result<Option<Value>, ControlError> {
        let mut line = String::new();
        let read = (&mut self.read).take(MAX_LINE).read_line(&mut line).await;
        let failed = |text: String| ControlError::Socket { path: self.home.node_socket(), text };
        match read {
            Ok(0) => Ok(None),
            Ok(_) => {
                serde_json::from_str(&line).map(Some).map_err(|error| failed(error.to_string()))
            }
            Err(error) => Err(failed(error.to_string())),
        }
    }
}
