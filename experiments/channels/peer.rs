//! A node with services at the far end of a testbed, and a client at the near end that has joined
//! it: whole programs.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::process_tree::ProcessTree;
use crate::program::{Program, Side, output, poll_until};
use crate::testbed::Testbed;

/// The node, and the folder of its home and of the client's.
pub struct Peer {
    /// The first field, so that the node ends before its folder is removed.
    node: Program,
    folder: TempDir,
    levada: PathBuf,
}

impl Peer {
    /// Starts the node `name` with services, each given by its file, and joins it.
    pub fn start(
        levada: &Path,
        testbed: &Testbed,
        name: &str,
        services: &[String],
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let near = folder.path().join("near");
        let far = folder.path().join("far");
        for home in [&near, &far] {
            fs::create_dir(home)?;
        }
        let listen = SocketAddr::new(testbed.far_address(), 0).to_string();
        let words = ["up", "--name", name, "--listen", &listen, "--http", "127.0.0.1:0"];
        let mut up = command(levada, &far, &words);
        up.arg("--no-announce");
        for (number, service) in services.iter().enumerate() {
            let file = folder.path().join(format!("{number}.toml"));
            fs::write(&file, service)?;
            up.arg("--service").arg(&file);
        }
        let stop = command(levada, &far, &["stop"]);
        let node = Program::start_quiet(testbed, Side::Far, up)?.with_stop_command(stop);
        poll_until("the node", || {
            Ok(output(testbed, Side::Far, command(levada, &far, &["status"])).ok())
        })?;
        let invitation = output(testbed, Side::Far, command(levada, &far, &["invite"]))?;
        let code = invitation.strip_prefix("levada join ").unwrap_or(&invitation);
        let join = command(levada, &near, &["join", code, "--as", name]);
        output(testbed, Side::Near, join)?;
        Ok(Self { node, folder, levada: levada.to_owned() })
    }

    /// A `levada` command of the client.
    pub fn client(&self, words: &[&str]) -> Command {
        command(&self.levada, &self.folder.path().join("near"), words)
    }

    /// The node's processes.
    pub fn processes(&self) -> anyhow::Result<ProcessTree> {
        Ok(ProcessTree(self.node.id()?))
    }
}

/// A `levada` command with the identity in `home`.
fn command(levada: &Path, home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(levada);
    command.args(words).env("LEVADA_HOME", home);
    command.env_remove("DISPLAY").env_remove("XAUTHORITY").stdin(Stdio::null());
    command
}
