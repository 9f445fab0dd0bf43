"""The place of one case: folders, addresses, the monitor, and all processes that it starts."""

import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from .case import repeated_digest

ESTABLISHED, CLOSE_WAIT, LISTEN = "01", "08", "0A"
UNPRIVILEGED = 65534
SYSTEM_FOLDERS = ["/usr/sbin", "/sbin", "/usr/local/go/bin"]


def sockets(port):
    """Yields the state of each TCP socket of this machine whose local port is `port`."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            columns = line.split()
            if int(columns[1].rsplit(":", 1)[1], 16) == port:
                yield columns[3]


def adopt_orphans():
    """Makes this process the parent of orphans below it, so that it can end them."""
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def descendants(root):
    """Returns the processes below a process."""
    children = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rsplit(")", 1)[1].split()[1]
        except OSError:
            continue
        children.setdefault(int(parent), []).append(int(folder.name))
    found, queue = [], [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def end_orphans(keep=None):
    """Ends and reaps all processes below this one, except the process `keep`."""
    below = [pid for pid in descendants(os.getpid()) if keep is None or pid != keep.child.pid]
    for pid in below:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for pid in below:
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            pass


class Process:
    """A running program in its own process group, with its output in files."""

    def __init__(self, place, name, argv, env, stdin=None):
        self.name = name
        self.output = place.logs / f"{name}.out"
        self.errors = place.logs / f"{name}.err"
        self.start = time.monotonic()
        with open(self.output, "wb") as out, open(self.errors, "wb") as err:
            with open(stdin or os.devnull, "rb") as source:
                self.child = subprocess.Popen(
                    [str(part) for part in argv],
                    stdin=source, stdout=out, stderr=err, env=env,
                    cwd=place.folder, start_new_session=True,
                )

    def wait(self, seconds):
        """Returns the exit code, or None after this time."""
        try:
            return self.child.wait(max(seconds, 0))
        except subprocess.TimeoutExpired:
            return None

    def signal(self, number):
        """Sends a signal to the program."""
        if self.child.poll() is None:
            self.child.send_signal(number)

    def kill(self):
        """Ends the program and all that it started at once."""
        below = descendants(self.child.pid)
        for end, pid in [(os.killpg, self.child.pid)] + [(os.kill, pid) for pid in below]:
            try:
                end(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.child.wait()

    def text(self):
        return self.output.read_text(errors="replace")

    def error_text(self):
        return self.errors.read_text(errors="replace")


class Place:
    """Where the programs of a case run. Use it in a `with` statement."""

    number = 0

    def __init__(self, settings, case):
        Place.number += 1
        self.settings, self.case = settings, case
        self.work = settings.work
        self.is_full = settings.size == "full"
        self.large_bytes = 1_000_000_000 if self.is_full else 20_000_000
        self.folder = Path(tempfile.mkdtemp(prefix="foreign-"))
        self.logs = self.folder / "logs"
        self.logs.mkdir()
        # Workers of servers give up their rights.
        self.folder.chmod(0o755)
        self.private = Path(tempfile.mkdtemp(prefix="foreign-fast-"))
        high, low = os.getpid() >> 8 & 127, os.getpid() & 255
        self.host = f"127.{high | 128}.{low}.{Place.number % 254 + 1}"
        if settings.direct:
            # Connections to other addresses are made by the kernel.
            self.host = "127.0.0.1"
        self.taken, self.named = set(), {}
        self.port = self.free_port()
        self.processes = []
        self.monitor = None
        self.pattern_path = self.folder / "pattern"
        self.pattern_path.write_bytes(settings.pattern)
        if case.unprivileged and os.geteuid() == 0:
            for path in (self.folder, self.logs, self.private):
                os.chown(path, UNPRIVILEGED, UNPRIVILEGED)

    def free_port(self):
        """Returns a port that nothing uses, below those that the kernel gives to clients."""
        for port in range(20_000, 30_000):
            if port in self.taken or any(True for _ in sockets(port)):
                continue
            with socket.socket() as probe:
                try:
                    probe.bind((self.host, port))
                except OSError:
                    continue
            self.taken.add(port)
            return port
        raise RuntimeError("no port is free")

    def named_port(self, name):
        """Returns a second port of the case, the same one for each call."""
        if name not in self.named:
            self.named[name] = self.free_port()
        return self.named[name]

    def environment(self, extra=()):
        env = {key: value for key, value in os.environ.items() if not key.startswith("LEVADA_")}
        env.pop("LD_PRELOAD", None)
        env["PATH"] = os.pathsep.join([env.get("PATH", "")] + SYSTEM_FOLDERS)
        env["LEVADA_FAST_SOCKET"] = str(self.private / "run" / "fast.sock")
        if self.settings.library:
            env["LEVADA_FAST_LIBRARY"] = str(self.settings.library)
        env["RUST_BACKTRACE"] = "0"
        env["HOME"], env["LC_ALL"] = str(self.folder), "C.UTF-8"
        env.update(extra)
        return env

    def spawn(self, name, argv, env=(), stdin=None):
        """Starts a program as it is."""
        if self.case.unprivileged and os.geteuid() == 0:
            user = str(UNPRIVILEGED)
            argv = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--", *argv]
        process = Process(self, name, argv, self.environment(env), stdin)
        self.processes.append(process)
        return process

    def start(self, name, program, fast, stats=None):
        """Starts a program of the case, with the library if `fast`."""
        prefix = []
        if fast and program.may_be_fast:
            prefix = [self.settings.levada, "fast"]
            prefix += ["--direct"] if self.settings.direct else []
            prefix += [f"--stats={stats}"] if stats else []
            prefix.append("--")
        return self.spawn(name, prefix + list(program.argv), program.env, program.stdin)

    def start_monitor(self):
        self.monitor = self.spawn("monitor", [self.settings.levada, "monitor"])
        end = time.monotonic() + 20
        while not (self.private / "run" / "fast.sock").exists():
            if self.monitor.wait(0.02) is not None or time.monotonic() > end:
                raise RuntimeError(f"no monitor: {self.monitor.error_text()}")

    def shell(self, *argv, seconds=120, env=(), stdin=None, cwd=None):
        """Runs a command without the library, and returns its output. Raises if it fails."""
        done = subprocess.run(
            [str(part) for part in argv], env=self.environment(env), cwd=cwd or self.folder,
            stdin=subprocess.DEVNULL if stdin is None else open(stdin, "rb"),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds,
        )
        text = done.stdout.decode(errors="replace")
        if done.returncode != 0:
            raise RuntimeError(f"{argv[0]} failed with {done.returncode}: {text[-2000:]}")
        return text

    def write(self, name, text):
        """Writes a file into the folder, and returns its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def huge_file(self, name):
        """Makes a file of `large_bytes` that repeats the pattern. Returns its digest."""
        path, rest = self.folder / name, self.large_bytes
        if not path.exists() or path.stat().st_size != rest:
            with open(path, "wb") as file:
                while rest:
                    rest -= file.write(self.settings.pattern[:rest])
            path.chmod(0o644)
        return repeated_digest(self.settings.pattern, self.large_bytes)

    def source(self, name):
        """Returns the path of a source file beside this module."""
        return self.settings.programs / name

    def open_connections(self, port=None):
        """Returns how many connections the server still has."""
        states = list(sockets(port or self.port))
        return sum(state in (ESTABLISHED, CLOSE_WAIT) for state in states)

    def is_listening(self, port):
        return LISTEN in list(sockets(port))

    def log_text(self):
        """Returns what the programs wrote to standard error, for the report."""
        return self.texts_of(self.processes)

    def server_log(self):
        return self.texts_of(it for it in self.processes if it.name.startswith("server"))

    def texts_of(self, processes):
        texts = []
        for process in processes:
            if process is not self.monitor and (text := process.error_text().strip()):
                texts.append(f"[{process.name}] {text[-1500:]}")
        return "\n".join(texts)

    def end_processes(self, keep_monitor=True):
        """Ends all processes of the case except the monitor."""
        for process in reversed(self.processes):
            if process is not self.monitor or not keep_monitor:
                process.kill()
        end_orphans(keep=self.monitor)
        self.processes = [self.monitor] if keep_monitor and self.monitor else []

    def stop_monitor(self):
        """Ends the monitor. Returns an error text if it was not well."""
        ended = self.monitor.wait(0)
        if ended is not None:
            return f"the monitor ended with {ended}: {self.monitor.error_text()[-500:]}"
        self.monitor.signal(signal.SIGTERM)
        if self.monitor.wait(5) is None:
            return "the monitor did not end by SIGTERM"
        return ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end_processes(keep_monitor=False)
        end_orphans()
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.private, ignore_errors=True)


CRASH = re.compile(
    r"exited on signal|[Ss]egmentation fault|AddressSanitizer|panicked at|core dumped|"
    r"Assertion .* failed|assertion failed|terminate called|SIGSEGV|SIGABRT"
)


def crash_line(text):
    """Returns the first line that tells of a crash, or nothing."""
    found = next((line for line in text.splitlines() if CRASH.search(line)), "")
    return found.strip()[:200]
