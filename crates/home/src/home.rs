//! A home: its folders, the key of its identity, and the lock of the running node.

mod error;
mod key_file;
mod lock;
mod private;

use etcetera::BaseStrategy;
use levada_core::{SecretKey, sha256};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

pub use error::HomeError;
pub use key_file::load as read_key_file;
pub use key_file::set_new_key_hook;
pub use lock::{Held, Lock};
pub use private::write_private;

/// The environment variable for one folder of the configuration, state and runtime files of a home.
pub const HOME_VARIABLE: &str = "LEVADA_HOME";

/// Maximum length of a socket path in bytes: `sun_path` has 108 bytes (unix(7)), with a terminating
/// zero.
const MAX_SOCKET_PATH: usize = 107;
/// The name of the control socket in the folder of runtime files.
pub const CONTROL_SOCKET: &str = "control.sock";

/// The folders of one identity on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    config: PathBuf,
    state: PathBuf,
    runtime: PathBuf,
    temporary: PathBuf,
}

impl Home {
    /// The home of this process: `LEVADA_HOME`, otherwise the XDG folders. Creates the folders of
    /// state and runtime files, readable by their owner only.
    ///
    /// # Errors
    /// [`HomeError`] if no home is known, `LEVADA_HOME` is empty, or a folder cannot be created or
    /// is not safe.
    pub fn open() -> Result<Self, HomeError> {
        let home = Self::locate(std::env::var_os(HOME_VARIABLE))?;
        home.prepare()?;
        Ok(home)
    }

    /// The home of this process as for [`Self::open`], without its folders: nothing is created.
    ///
    /// # Errors
    /// [`HomeError`] if no home is known, or `LEVADA_HOME` is empty.
    pub fn find() -> Result<Self, HomeError> {
        Self::locate(std::env::var_os(HOME_VARIABLE))
    }

    /// Checks the folders that [`Self::open`] creates or uses. Nothing is created.
    ///
    /// # Errors
    /// [`HomeError`] as for [`Self::open`].
    pub fn check_folders(&self) -> Result<(), HomeError> {
        private::check_folder(&self.state)?;
        private::check_own_folder(&self.runtime)
    }

    /// The home under `folder`, as if `LEVADA_HOME` named it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn at(folder: &Path) -> Result<Self, HomeError> {
        let home = Self::locate(Some(folder.into()))?;
        home.prepare()?;
        Ok(home)
    }

    /// The folder of the configuration.
    pub fn config_folder(&self) -> &Path {
        &self.config
    }

    /// The folder of keys and databases.
    pub fn state_folder(&self) -> &Path {
        &self.state
    }

    /// The folder of sockets and other files that are not needed after a restart of the machine.
    pub fn runtime_folder(&self) -> &Path {
        &self.runtime
    }

    /// The configuration file, which need not exist.
    pub fn config_file(&self) -> PathBuf {
        self.config.join("config.toml")
    }

    /// The file of the identity's secret key.
    pub fn key_file(&self) -> PathBuf {
        self.state.join("identity.key")
    }

    /// The node's database, which only the process with the [`Lock`] opens.
    pub fn node_db(&self) -> PathBuf {
        self.state.join("node.db")
    }

    /// The database of pins, which any process of this home opens for short transactions.
    pub fn known_db(&self) -> PathBuf {
        self.state.join("known.db")
    }

    /// The folder of the catalogue, unless the configuration names another. Only the process with
    /// the [`Lock`] opens its files.
    pub fn catalogue_folder(&self) -> PathBuf {
        self.state.join("catalogue")
    }

    /// The socket on which a node of this home accepts commands. Its path has at most 107 bytes.
    pub fn control_socket(&self) -> PathBuf {
        self.runtime.join(CONTROL_SOCKET)
    }

    /// The socket of the node that last took the lock. It differs from [`Self::control_socket`] if
    /// that node was started with another runtime folder (by cron, or over ssh).
    pub fn node_socket(&self) -> PathBuf {
        lock::socket_of_owner(&self.lock_file()).unwrap_or_else(|| self.control_socket())
    }

    /// The file that the running node locks, in the folder of the state that it protects.
    pub fn lock_file(&self) -> PathBuf {
        self.state.join("node.lock")
    }

    /// The identity's key; created on first use, which [`set_new_key_hook`] can report.
    ///
    /// # Errors
    /// [`HomeError`] if the key cannot be read or created, or other users can read it.
    pub fn key(&self) -> Result<SecretKey, HomeError> {
        key_file::load_or_create(&self.key_file())
    }

    /// The identity's key, or `None` if this home has none yet.
    ///
    /// # Errors
    /// [`HomeError`] if the key cannot be read, or other users can read it.
    pub fn existing_key(&self) -> Result<Option<SecretKey>, HomeError> {
        key_file::load(&self.key_file())
    }

    /// Writes `key` durably to a second file. This home's key stays the same until
    /// [`Self::activate_staged_key`], so that an interrupted rotation loses neither key.
    ///
    /// # Errors
    /// [`HomeError::Io`] if it cannot be written.
    pub fn stage_key(&self, key: &SecretKey) -> Result<(), HomeError> {
        key_file::replace(&self.staged_key_file(), key)
    }

    /// The staged key of an unfinished rotation.
    ///
    /// # Errors
    /// [`HomeError`] if the key cannot be read, or other users can read it.
    pub fn staged_key(&self) -> Result<Option<SecretKey>, HomeError> {
        key_file::load(&self.staged_key_file())
    }

    /// Replaces this home's key by the staged one.
    ///
    /// # Errors
    /// [`HomeError::Io`] if there is no staged key, or its file cannot be renamed.
    pub fn activate_staged_key(&self) -> Result<(), HomeError> {
        private::rename_over(&self.staged_key_file(), &self.key_file())
    }

    /// Takes this home's lock, which the running node holds, and otherwise a command that changes
    /// the node's files. The kernel releases it when the process ends, even by `kill -9`.
    ///
    /// # Errors
    /// [`HomeError::Locked`] if another process holds it.
    pub fn lock(&self) -> Result<Lock, HomeError> {
        lock::acquire(&self.lock_file(), &self.control_socket())
    }

    /// Takes this home's lock as [`Self::lock`] does, and leaves its file unchanged; `None` if no
    /// process has ever taken it.
    ///
    /// # Errors
    /// As for [`Self::lock`].
    pub fn hold(&self) -> Result<Option<Held>, HomeError> {
        lock::hold(&self.lock_file())
    }

    /// The file of the staged key of an unfinished rotation.
    pub fn staged_key_file(&self) -> PathBuf {
        self.state.join("identity.key.next")
    }

    fn locate(variable: Option<OsString>) -> Result<Self, HomeError> {
        let temporary = std::env::temp_dir();
        if let Some(folder) = variable {
            if folder.is_empty() {
                return Err(HomeError::EmptyVariable);
            }
            let folder = PathBuf::from(folder);
            let home = std::path::absolute(&folder).map_err(HomeError::io("find", &folder))?;
            let runtime = home.join("run");
            return Ok(Self { config: home.clone(), state: home, runtime, temporary }.shortened());
        }
        let xdg = etcetera::base_strategy::Xdg::new().map_err(|_| HomeError::NoHome)?;
        Ok(Self::in_folders(&xdg, temporary))
    }

    fn in_folders(xdg: &impl BaseStrategy, temporary: PathBuf) -> Self {
        let config = xdg.config_dir().join("levada");
        let state = xdg.state_dir().unwrap_or_else(|| xdg.data_dir()).join("levada");
        let runtime =
            xdg.runtime_dir().map_or_else(|| state.join("run"), |folder| folder.join("levada"));
        Self { config, state, runtime, temporary }.shortened()
    }

    fn prepare(&self) -> Result<(), HomeError> {
        private::create_folder(&self.state)?;
        private::create_own_folder(&self.runtime)
    }

    /// Replaces a runtime folder whose socket path would be too long by a short one that is
    /// specific to this home.
    fn shortened(mut self) -> Self {
        let length = |folder: &Path| folder.join(CONTROL_SOCKET).as_os_str().len();
        if length(&self.runtime) <= MAX_SOCKET_PATH {
            return self;
        }
        let user = rustix::process::geteuid().as_raw();
        let name = short_name(&self.state);
        let session = PathBuf::from(format!("/run/user/{user}"));
        let candidates = [
            session.is_dir().then(|| session.join(format!("levada-{name}"))),
            Some(self.temporary.join(format!("levada-{user}-{name}"))),
            Some(PathBuf::from(format!("/tmp/levada-{user}-{name}"))),
        ];
        if let Some(folder) =
            candidates.into_iter().flatten().find(|folder| length(folder) <= MAX_SOCKET_PATH)
        {
            self.runtime = folder;
        }
        self
    }
}

/// 16 hexadecimal digits of a hash of the state folder, different for each home.
fn short_name(state: &Path) -> String {
    let digest = sha256(&[state.as_os_str().as_encoded_bytes()]);
    digest[..8].iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn creates_one_private_key() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(&folder.path().join("new/home")).unwrap();
        assert!(home.existing_key().unwrap().is_none());
        let first = home.key().unwrap().identity();
        assert_eq!(home.key().unwrap().identity(), first);
        assert_eq!(mode(&home.key_file()), 0o600);
        assert_eq!(mode(home.state_folder()), 0o700);
        let left: Vec<_> = fs::read_dir(home.state_folder()).unwrap().flatten().collect();
        assert_eq!(left.len(), 2, "key and run only: {left:?}");
    }

    #[test]
    fn concurrent_processes_get_one_key() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path()).unwrap();
        let identities: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| home.key().unwrap().identity())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(identities.iter().all(|identity| *identity == identities[0]));
    }

    #[test]
    fn refuses_an_exposed_or_malformed_key_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path()).unwrap();
        home.key().unwrap();
        fs::set_permissions(home.key_file(), fs::Permissions::from_mode(0o640)).unwrap();
        let text = home.key().unwrap_err().to_string();
        assert!(text.contains("chmod 600"), "{text}");
        fs::set_permissions(home.key_file(), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(home.key_file(), "lvkey1nonsense").unwrap();
        assert!(matches!(home.key(), Err(HomeError::KeyMalformed { .. })));
    }

    #[test]
    fn a_staged_key_takes_effect_only_when_activated() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path()).unwrap();
        let old = home.key().unwrap().identity();
        let new = SecretKey::generate(&levada_core::SystemRandom).unwrap();
        home.stage_key(&new).unwrap();
        assert_eq!(home.key().unwrap().identity(), old);
        assert_eq!(home.staged_key().unwrap().unwrap().identity(), new.identity());
        home.activate_staged_key().unwrap();
        assert_eq!(home.key().unwrap().identity(), new.identity());
        assert!(home.staged_key().unwrap().is_none());
    }

    #[test]
    fn the_lock_is_exclusive_and_names_the_socket() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path()).unwrap();
        let lock = home.lock().unwrap();
        let Err(HomeError::Locked { process, .. }) = home.lock() else {
            panic!("locked twice");
        };
        assert_eq!(process, Some(std::process::id()));
        let elsewhere = Home { runtime: "/elsewhere".into(), ..home.clone() };
        assert_eq!(elsewhere.node_socket(), home.control_socket());
        drop(lock);
        assert_eq!(elsewhere.node_socket(), Path::new("/elsewhere/control.sock"));
        home.lock().unwrap();
    }

    #[test]
    fn a_home_with_a_long_path_has_a_short_socket_path() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| Home {
            config: folder.path().into(),
            state: folder.path().join(name).join("x".repeat(120)),
            runtime: folder.path().join(name).join("x".repeat(120)).join("run"),
            temporary: folder.path().into(),
        };
        let first = at("first").shortened();
        let second = at("second").shortened();
        assert!(first.control_socket().as_os_str().len() <= MAX_SOCKET_PATH);
        assert_ne!(first.control_socket(), second.control_socket());
        assert_eq!(first.control_socket(), at("first").shortened().control_socket());
    }

    #[test]
    fn refuses_a_runtime_folder_that_others_control() {
        let folder = tempfile::tempdir().unwrap();
        let open = folder.path().join("run");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(Home::at(folder.path()), Err(HomeError::Unsafe { .. })));
        fs::remove_dir(&open).unwrap();
        symlink("/tmp", &open).unwrap();
        assert!(matches!(Home::at(folder.path()), Err(HomeError::Unsafe { .. })));
    }
}
