//! An `sshd` of an experiment, and commands that reach it. It has its own keys, and reads nothing
//! of the user's configuration.

use std::ffi::OsStr;
use std::fs;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::binary;
use crate::program::{Program, Side, free_address, poll_until};
use crate::testbed::Testbed;

/// An `sshd` at the far end of a testbed.
pub struct Sshd {
    /// The folder of the keys, which outlives this.
    folder: PathBuf,
    address: SocketAddr,
    program: Program,
}

impl Sshd {
    /// Starts it, with keys in `folder`, and waits until it listens.
    pub fn start(testbed: &Testbed, folder: &Path) -> anyhow::Result<Self> {
        for key in ["host", "user"] {
            let mut made = Command::new("ssh-keygen");
            made.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.join(key));
            ensure!(made.status().context("run ssh-keygen")?.success(), "ssh-keygen makes no key");
        }
        let address = free_address(testbed, Side::Far)?;
        let file = folder.join("sshd_config");
        fs::write(&file, configuration(folder, address))?;
        // sshd requires this folder when it runs as root.
        let _ = fs::create_dir_all("/run/sshd");
        let mut command = Command::new(executable()?);
        command.args(["-D", "-e", "-f"]).arg(&file);
        let program = Program::start_quiet(testbed, Side::Far, command)?;
        poll_until("sshd", || Ok(Side::Near.run(testbed, || TcpStream::connect(address))?.ok()))?;
        Ok(Self { folder: folder.to_owned(), address, program })
    }

    /// `ssh` or `scp` with the options that it needs; the address of the server comes next.
    pub fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(["-q", "-F", "none", "-i"]).arg(self.folder.join("user"));
        let port = format!("Port={}", self.address.port());
        for option in
            [&port, "BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null"]
        {
            command.args(["-o", option]);
        }
        command
    }

    /// The remote shell of `rsync`: `ssh` with the same options, separated by spaces.
    pub fn remote_shell(&self) -> anyhow::Result<String> {
        let command = self.client("ssh");
        let words = [command.get_program()].into_iter().chain(command.get_args());
        let words: Option<Vec<&str>> = words.map(OsStr::to_str).collect();
        Ok(words.context("a path is not UTF-8")?.join(" "))
    }

    /// Its address.
    pub fn ip(&self) -> IpAddr {
        self.address.ip()
    }

    /// Its process.
    pub fn id(&self) -> anyhow::Result<u32> {
        self.program.id()
    }
}

/// The path of `sshd`, which refuses to start without one.
pub fn executable() -> anyhow::Result<PathBuf> {
    let usual = [PathBuf::from("/usr/sbin")];
    binary::find("sshd", usual).context("sshd is not installed; with Debian: openssh-server")
}

fn configuration(folder: &Path, address: SocketAddr) -> String {
    let file = |name: &str| folder.join(name).display().to_string();
    let host = file("host");
    let user = file("user.pub");
    let ip = address.ip();
    let port = address.port();
    format!(
        "ListenAddress {ip}\nPort {port}\nHostKey {host}\nAuthorizedKeysFile {user}\nPidFile none\nUsePAM no\n\
         StrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\nSubsystem sftp internal-sftp\n"
    )
}
