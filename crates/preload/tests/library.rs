//! How a test loads the library into a program, and starts the monitor that the library asks.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use levada_monitor::{Client, Monitor, Options, SOCKET_VARIABLE};
use levada_ring::records::{Mode, Traffic};
use tempfile::TempDir;

/// Whether counts and sizes are those of `scripts/test --all` (`LEVADA_TEST_FULL`).
pub fn in_full() -> bool {
    std::env::var_os("LEVADA_TEST_FULL").is_some()
}

/// The library.
pub fn library() -> &'static PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| built("liblevada_preload.so", &["--lib"]))
}

/// The program whose calls are compared.
pub fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| built("examples/socket-program", &["--example", "socket-program"]))
}

/// A file of this package in the folder of the build that this test is of. It is built first, if
/// cargo has not done so.
fn built(file: &str, target: &[&str]) -> PathBuf {
    // Tests are in `deps` of that folder.
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(|deps| deps.parent()).unwrap();
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    build.args(["build", "--quiet", "--locked", "--package", "levada-preload"]).args(target);
    if folder.ends_with("release") {
        build.arg("--release");
    }
    build.arg("--target-dir").arg(folder.parent().unwrap());
    build.current_dir(env!("CARGO_MANIFEST_DIR"));
    assert!(build.status().unwrap().success(), "{file} cannot be built");
    let file = folder.join(file);
    assert!(file.exists(), "{} is missing", file.display());
    file
}

/// A program of the tests, made from a source in C in the folder of these tests.
pub fn compiled(source: &str, options: &[&str]) -> PathBuf {
    compiled_by("cc", source, options)
}

/// As [`compiled`], by another compiler.
pub fn compiled_by(compiler: &str, source: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    let folder = std::env::current_exe().unwrap().parent().unwrap().join("programs-in-c");
    std::fs::create_dir_all(&folder).unwrap();
    // Tests that run at the same time may make the same one.
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let name = source.file_stem().unwrap().to_string_lossy().into_owned();
    let new = folder.join(format!("{name}-{}-{number}", std::process::id()));
    let mut command = Command::new(compiler);
    command.args(["-O1", "-g", "-o"]).arg(&new).arg(&source).args(options);
    assert!(command.status().unwrap().success(), "{source:?} cannot be compiled");
    let kind = options.join("").replace('/', "");
    let program = folder.join(format!("{name}-{compiler}{kind}"));
    std::fs::rename(new, &program).unwrap();
    program
}

/// Lets a program run with the library. Its connections are offered early, however short others
/// were.
pub fn with_library(command: &mut Command) {
    command.env("LD_PRELOAD", library()).env(SOCKET_VARIABLE, monitor());
    command.env("LEVADA_FAST_OFFER_AT", "2");
}

/// The socket of the monitor of this test program, which runs in a thread.
pub fn monitor() -> &'static Path {
    static SOCKET: OnceLock<PathBuf> = OnceLock::new();
    SOCKET.get_or_init(|| {
        let folder = folder().keep();
        // SAFETY: the function is one of this program, and needs no argument.
        unsafe { libc::atexit(remove_folder) };
        start_monitor(&folder)
    })
}

/// The folder of another monitor, for a program that disturbs its clients.
pub fn folder() -> TempDir {
    tempfile::Builder::new().prefix("levada-fast").tempdir().unwrap()
}

/// Starts a monitor in a thread. Returns its socket.
pub fn start_monitor(folder: &Path) -> PathBuf {
    // The monitor makes the folder of its socket itself, for this user only.
    let socket = folder.join("run/fast.sock");
    let monitor = Monitor::bind(&socket, Options::default()).unwrap();
    std::thread::spawn(move || monitor.run().unwrap());
    socket
}

/// The folder of the monitor's socket, at the end of this test program.
extern "C" fn remove_folder() {
    let folder = monitor().parent().and_then(Path::parent);
    let _ = folder.map(std::fs::remove_dir_all);
}

/// Whether a connection of this process went over to shared memory; nothing if the process does not
/// show its connections.
pub fn upgraded(process: u32) -> Option<bool> {
    let processes = Client::connect(monitor()).ok()?.list(0).ok()?;
    let records = processes.into_iter().find(|listed| listed.pid == process)?.records.ok()?;
    Some(
        records.closed.upgraded > 0
            || records.connections.iter().any(|open| open.mode == Mode::Ring),
    )
}

/// Counts what the connections of one run of a program carry.
pub struct Count {
    monitor: Client,
    run: u64,
}

impl Count {
    /// Counts from the start of this program on.
    pub fn begin(command: &mut Command) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let run = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let monitor = Client::connect(monitor()).unwrap();
        monitor.watch(run).unwrap();
        command.env("LEVADA_FAST_RUN", run.to_string());
        Self { monitor, run }
    }

    /// What the processes of the run have carried, also those that have ended.
    pub fn traffic(&self) -> Traffic {
        let mut sum = Traffic::default();
        for process in self.monitor.list(self.run).unwrap() {
            sum += process.records.unwrap().traffic();
        }
        sum
    }
}
