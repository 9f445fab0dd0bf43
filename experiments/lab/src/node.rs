//! A node: an unnamed network namespace and a worker thread in it.
//!
//! Nothing is written to `/run/netns`, so nothing can be left behind: the namespace exists as long
//! as the thread, the descriptor, and the programs and sockets in it. When the process ends, also
//! if it is killed, the kernel closes the first two and kills the programs.

mod children;

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::thread::{LinkNameSpaceType, gettid, move_into_link_name_space};

use crate::LabError;
use children::Children;

type Job = Box<dyn FnOnce(&mut Children) + Send>;

/// A node of a lab. Clones refer to the same node. After the lab is dropped, all functions fail
/// with [`LabError::Gone`].
#[derive(Clone, Debug)]
pub struct Node {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    index: usize,
    address: Ipv4Addr,
    thread: i32,
    namespace: Mutex<Option<Namespace>>,
}

/// The namespace's descriptor and worker thread, which keep it alive.
struct Namespace {
    file: Arc<File>,
    jobs: Sender<Job>,
    worker: JoinHandle<()>,
}

impl Node {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The address by which all other nodes reach it, over any links.
    pub fn address(&self) -> IpAddr {
        self.shared.address.into()
    }

    /// Runs `f` on a new thread in the namespace, and waits for it. Sockets that it creates belong
    /// to the node and may then be used by any thread; they keep the namespace alive even after the
    /// lab. Threads and programs that it starts are in the namespace too, but programs are killed
    /// with the lab only if [`Node::spawn`] starts them. A panic of `f` is resumed in the caller.
    ///
    /// # Errors
    /// [`LabError::Gone`], or [`LabError::System`] if no thread could be started or moved.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        let file = self
            .namespace()
            .as_ref()
            .map(|namespace| namespace.file.clone())
            .ok_or(LabError::Gone)?;
        let inside = move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(LabError::system("enter the network namespace of a node"))?;
            Ok(f())
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .name(format!("lab {}", self.name()))
                .spawn_scoped(scope, inside)
                .map_err(LabError::system("start a thread"))?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Starts a program in the namespace; `configure` sets its arguments, environment and standard
    /// streams. It is killed with the lab, together with its descendants: they are in a new PID
    /// namespace (though `/proc` is the host's). The [`Child`] represents all of them: they end
    /// when it is killed or when the program ends. Its exit code is the program's, 127 if there is
    /// no such program, and 128 + N if signal N ended it.
    ///
    /// # Errors
    /// [`LabError::Gone`], or [`LabError::System`] if it could not be started.
    pub fn spawn(
        &self,
        program: impl AsRef<OsStr>,
        configure: impl FnOnce(&mut Command),
    ) -> Result<Child, LabError> {
        let mut command = children::wrapped(program.as_ref());
        configure(&mut command);
        let (reply, answer) = channel();
        let job: Job = Box::new(move |children| {
            let _ = reply.send(children.spawn(command));
        });
        self.namespace()
            .as_ref()
            .ok_or(LabError::Gone)?
            .jobs
            .send(job)
            .map_err(|_| LabError::Gone)?;
        answer.recv().map_err(|_| LabError::Gone)?
    }

    /// Creates a namespace and its worker thread. Its loopback device is down, and it has no
    /// address yet.
    pub(crate) fn new(name: &str, index: usize, address: Ipv4Addr) -> Result<Self, LabError> {
        let (jobs, work) = channel();
        let (reply, ready) = channel();
        let worker = std::thread::Builder::new()
            .name(format!("lab {name}"))
            .spawn(move || run_worker(&reply, &work))
            .map_err(LabError::system("start a thread"))?;
        let (file, thread) = ready.recv().map_err(|_| LabError::Gone)??;
        let namespace = Mutex::new(Some(Namespace { file: Arc::new(file), jobs, worker }));
        let shared = Shared { name: name.to_owned(), index, address, thread, namespace };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Its number within the lab.
    pub(crate) fn index(&self) -> usize {
        self.shared.index
    }

    pub(crate) fn ipv4(&self) -> Ipv4Addr {
        self.shared.address
    }

    /// The id of the worker thread, for `ip link … netns`.
    pub(crate) fn thread(&self) -> i32 {
        self.shared.thread
    }

    /// Runs the lines as commands of `program -batch`, `ip` or `tc`, in the namespace.
    pub(crate) fn batch(&self, program: &str, lines: &str) -> Result<(), LabError> {
        self.run(|| batch(program, lines))?
    }

    /// Kills the programs, and ends the worker thread.
    pub(crate) fn close(&self) {
        let Some(namespace) = self.namespace().take() else { return };
        drop(namespace.jobs);
        let _ = namespace.worker.join();
    }

    fn namespace(&self) -> MutexGuard<'_, Option<Namespace>> {
        self.shared.namespace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for Node {}

impl std::fmt::Debug for Namespace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Namespace").finish_non_exhaustive()
    }
}

/// The worker thread: it creates the namespace, then starts programs, because PR_SET_PDEATHSIG
/// (prctl(2)) fires when the *thread* that started them ends, not the process.
fn run_worker(reply: &Sender<Result<(File, i32), LabError>>, work: &Receiver<Job>) {
    let _ = reply.send(enter_new_namespace().map(|file| (file, gettid().as_raw_nonzero().get())));
    let mut children = Children::default();
    while let Ok(job) = work.recv() {
        job(&mut children);
    }
    children.end();
}

fn enter_new_namespace() -> Result<File, LabError> {
    // Deprecated because it is unsafe for *descriptor tables* (`UnshareFlags::FILES`); for a
    // network it is sound.
    #[allow(deprecated)]
    rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET)
        .map_err(LabError::system("make a network namespace"))?;
    File::open("/proc/thread-self/ns/net").map_err(LabError::system("open a network namespace"))
}

fn batch(program: &str, lines: &str) -> Result<(), LabError> {
    let failed = |reason: String| LabError::Tool {
        command: format!("{program} -batch: {}", lines.trim()),
        reason,
    };
    let mut child = Command::new(program)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("{error} (it is in the Debian package iproute2)")))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(lines.as_bytes()).map_err(|error| failed(error.to_string()))?;
    }
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
