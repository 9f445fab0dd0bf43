//! The programs of one subject: a server at the far end, and commands at the near end.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::{BEFORE, LEVADA, SSH_AES};
use crate::channels::peer::Peer;
use crate::process_tree::ProcessTree;
use crate::sshd::Sshd;
use crate::testbed::Testbed;

/// The services of the node: every IPv4 address, and one command.
const SERVICES: [&str; 2] = [
    "name = 'forward'\ntype = 'forward'\nallow = ['0.0.0.0/0:*']\n",
    "name = 'run'\ntype = 'exec'\n[[command]]\nprogram = 'true'\n",
];
/// The cipher of channels, as ssh calls it.
const AES: &str = "aes256-gcm@openssh.com";

/// A server, which ends with this, and what its commands need.
pub enum Programs {
    /// A node.
    Levada(Peer),
    /// An `sshd`.
    Ssh {
        /// The server. The first field, so that it ends before its folder is removed.
        sshd: Sshd,
        /// The cipher, if not the default one.
        cipher: Option<&'static str>,
        /// Its keys.
        _folder: TempDir,
    },
}

impl Programs {
    /// Starts the server of a subject.
    pub fn start(subject: &str, levada: &Path, testbed: &Testbed) -> anyhow::Result<Self> {
        if [LEVADA, BEFORE].contains(&subject) {
            let services = SERVICES.map(str::to_owned);
            return Ok(Self::Levada(Peer::start(levada, testbed, "well", &services)?));
        }
        let folder = tempfile::tempdir()?;
        let sshd = Sshd::start(testbed, folder.path())?;
        let cipher = (subject == SSH_AES).then_some(AES);
        Ok(Self::Ssh { sshd, cipher, _folder: folder })
    }

    /// A command that forwards connections to `listen` at the near end to `target` at the far end.
    pub fn forward(&self, listen: SocketAddr, target: SocketAddr) -> Command {
        match self {
            Self::Levada(peer) => {
                let listen = listen.to_string();
                let target = target.to_string();
                peer.client(&["forward", "well/forward", "--listen", &listen, "--", &target])
            }
            Self::Ssh { sshd, .. } => {
                let mut command = self.ssh(sshd);
                command.args(["-N", "-o", "ExitOnForwardFailure=yes", "-L"]);
                command.arg(format!("{listen}:{target}")).arg(sshd.ip().to_string());
                command
            }
        }
    }

    /// A command that runs `true` at the far end.
    pub fn run_true(&self) -> Command {
        match self {
            Self::Levada(peer) => peer.client(&["run", "well/run", "--", "true"]),
            Self::Ssh { sshd, .. } => {
                let mut command = self.ssh(sshd);
                command.arg(sshd.ip().to_string()).arg("true");
                command
            }
        }
    }

    /// The processes of the server.
    pub fn server(&self) -> anyhow::Result<ProcessTree> {
        match self {
            Self::Levada(peer) => peer.processes(),
            Self::Ssh { sshd, .. } => Ok(ProcessTree(sshd.id()?)),
        }
    }

    fn ssh(&self, sshd: &Sshd) -> Command {
        let mut command = sshd.client("ssh");
        if let Self::Ssh { cipher: Some(cipher), .. } = self {
            command.args(["-c", cipher]);
        }
        command
    }
}
