//! A host with its own users, homes and names, in namespaces for its network, mounts, host name and
//! processes.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use levada_lab::Node;

use crate::support::Ran;

/// The time limit of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Enters the host, whose files are in `$0`, and runs the script `$5` as the user `$3`. `/tmp` is
/// replaced last, because the files are in the present one.
const ENTER: &str = r#"
set -e
cd "$0"
mount -t proc proc /proc
mount --bind etc/hosts /etc/hosts
mount --bind etc/passwd /etc/passwd
mount --bind home /home
mount --bind run /run
mount --bind bin /usr/local/bin
mount --bind "$2" /usr/local/bin/levada
mount --bind tmp /tmp
echo "$1" > /proc/sys/kernel/hostname
export HOME="/home/$3" USER="$3" XDG_RUNTIME_DIR="/run/user/$4"
cd "$HOME"
exec setpriv --reuid "$4" --regid "$4" --clear-groups env -i HOME="$HOME" USER="$USER" \
    XDG_RUNTIME_DIR="$XDG_RUNTIME_DIR" PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 NO_COLOR=1 \
    sh -c "$5"
"#;

/// A user of every host.
#[derive(Clone, Copy)]
pub struct User {
    name: &'static str,
    id: u32,
}

/// The user who runs the nodes.
pub const OWNER: User = User { name: "owner", id: 1000 };
/// The user of the laptop, who has an account on the server, too.
pub const ANNA: User = User { name: "anna", id: 1001 };
const ROOT: User = User { name: "root", id: 0 };

pub struct Machine {
    node: Node,
    /// The user of its terminal.
    user: User,
    files: PathBuf,
}

impl Machine {
    /// A host with its files in a new folder. `names` is its `/etc/hosts`.
    pub fn new(node: Node, user: User, files: &Path, names: &str) -> Self {
        for folder in ["bin", "etc", "home/root", "run/sshd", "run/user", "tmp"] {
            fs::create_dir_all(files.join(folder)).unwrap();
        }
        for (folder, mode) in [("tmp", 0o1777), ("run/sshd", 0o755)] {
            fs::set_permissions(files.join(folder), fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::write(files.join("bin/levada"), "").unwrap();
        fs::write(files.join("etc/hosts"), names).unwrap();
        let mut users = String::new();
        for User { name, id } in [OWNER, ANNA] {
            users += &format!("{name}:x:{id}:{id}::/home/{name}:/bin/sh\n");
        }
        // The users of this machine come last: the first entry of a name or number counts.
        users += &fs::read_to_string("/etc/passwd").unwrap();
        fs::write(files.join("etc/passwd"), users).unwrap();
        let machine = Self { node, user, files: files.to_owned() };
        for user in [OWNER, ANNA] {
            machine.own_folder(user, &format!("home/{}", user.name));
            machine.own_folder(user, &format!("run/user/{}", user.id));
        }
        machine
    }

    pub fn address(&self) -> IpAddr {
        self.node.address()
    }

    /// Starts a shell of the user of its terminal.
    pub fn start(&self, script: &str, output: Stdio, errors: Stdio) -> Child {
        self.start_as(self.user, script, output, errors)
    }

    /// Runs a shell of the user of its terminal.
    pub fn run(&self, script: &str) -> Ran {
        let child = self.start(script, Stdio::piped(), Stdio::piped());
        child.wait_with_output().unwrap().into()
    }

    /// Starts a shell of root.
    pub fn start_as_root(&self, script: &str, output: fn() -> Stdio) -> Child {
        self.start_as(ROOT, script, output(), output())
    }

    /// Returns true if a connection from this host is accepted.
    pub fn connects(&self, to: SocketAddr) -> bool {
        let connect = || TcpStream::connect_timeout(&to, CONNECT_TIMEOUT).is_ok();
        self.node.run(connect).unwrap()
    }

    /// Makes a key for ssh of its user: the public key.
    pub fn make_ssh_key(&self) -> String {
        let folder = format!("home/{}/.ssh", self.user.name);
        let folder = self.own_folder(self.user, &folder);
        let key = make_key(&folder.join("id_ed25519"));
        chown(folder.join("id_ed25519"), Some(self.user.id), Some(self.user.id)).unwrap();
        key
    }

    /// Stores the key of another host.
    pub fn know_host(&self, name: &str, key: &str) {
        let known = self.files.join(format!("home/{}/.ssh/known_hosts", self.user.name));
        fs::write(known, format!("{name} {key}\n")).unwrap();
    }

    /// Prepares `/run/sshd/config` for logins of Anna with this key: the public key of the server.
    pub fn prepare_sshd(&self, key: &str) -> String {
        let folder = self.own_folder(ANNA, &format!("home/{}/.ssh", ANNA.name));
        fs::write(folder.join("authorized_keys"), key).unwrap();
        let config = "ListenAddress 127.0.0.1:22\nHostKey /run/sshd/host_key\nPidFile none\n\
                      UsePAM no\nPasswordAuthentication no\n";
        fs::write(self.files.join("run/sshd/config"), config).unwrap();
        make_key(&self.files.join("run/sshd/host_key"))
    }

    fn start_as(&self, user: User, script: &str, output: Stdio, errors: Stdio) -> Child {
        let enter = ["--mount", "--uts", "sh", "-c", ENTER];
        let started = self.node.spawn("unshare", |command| {
            command.args(enter).arg(&self.files).arg(self.node.name());
            command.args([env!("CARGO_BIN_EXE_levada"), user.name, &user.id.to_string(), script]);
            command.stdin(Stdio::null()).stdout(output).stderr(errors);
        });
        started.unwrap()
    }

    /// Makes a folder that belongs to a user alone.
    fn own_folder(&self, user: User, name: &str) -> PathBuf {
        let folder = self.files.join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        chown(&folder, Some(user.id), Some(user.id)).unwrap();
        folder
    }
}

/// Makes a key for ssh: the public key.
fn make_key(file: &Path) -> String {
    let mut keygen = Command::new("ssh-keygen");
    Ran::from(keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file).output().unwrap())
        .ok();
    fs::read_to_string(file.with_extension("pub")).unwrap().trim_end().to_owned()
}
