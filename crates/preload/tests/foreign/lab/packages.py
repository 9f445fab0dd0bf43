"""The packages that cases need: whether they are there, and how to install them."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

POLICY = Path("/usr/sbin/policy-rc.d")
SYSTEM_PATH = os.pathsep.join(
    [os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/local/go/bin"]
)


def find(command):
    """Returns the path of a command, or None. A path stands for itself."""
    if command.startswith("/"):
        return command if os.path.exists(command) else None
    return shutil.which(command, path=SYSTEM_PATH)


def run(settings, *argv, cwd=None, env=None):
    """Runs an installer with its output in the log of the folder. Raises if it fails."""
    variables = dict(os.environ, PATH=SYSTEM_PATH, **(env or {}))
    settings.work.mkdir(parents=True, exist_ok=True)
    with open(settings.work / "install.log", "ab") as log:
        log.write(f"== {' '.join(map(str, argv))}\n".encode())
        log.flush()
        subprocess.run(
            [str(part) for part in argv], check=True, stdin=subprocess.DEVNULL, cwd=cwd,
            env=variables, stdout=log, stderr=log, timeout=1800,
        )


@dataclass(frozen=True)
class Apt:
    """A command (or a file) of a Debian package."""

    command: str
    package: str

    def is_there(self, settings):
        return find(self.command) is not None


@dataclass(frozen=True)
class Pip:
    """A package of PyPI, in the virtual environment of the work folder."""

    package: str
    module: str

    def is_there(self, settings):
        folders = settings.work.glob("venv/lib/python3*/site-packages")
        names = [f"{self.module}", f"{self.module}.py"]
        return any((folder / name).exists() for folder in folders for name in names)

    def install(self, settings):
        python = settings.work / "venv/bin/python3"
        if not python.exists():
            run(settings, "/usr/bin/python3", "-m", "venv", settings.work / "venv")
        run(settings, python, "-m", "pip", "install", "--quiet", self.package)


@dataclass(frozen=True)
class Npm:
    """A package of npm."""

    package: str

    def is_there(self, settings):
        return (settings.work / "npm/node_modules" / self.package).exists()

    def install(self, settings):
        folder = settings.work / "npm"
        run(settings, "npm", "install", "--silent", "--no-fund", "--no-audit",
            "--prefix", folder, self.package)


@dataclass(frozen=True)
class Rust:
    """A program of programs/rust, built with cargo."""

    program: str

    def is_there(self, settings):
        return (settings.work / "rust/release" / self.program).exists()

    def install(self, settings):
        run(settings, "cargo", "build", "--release", "--locked", "-j1", "--bins",
            "--target-dir", settings.work / "rust", cwd=settings.programs / "rust")


@dataclass(frozen=True)
class Go:
    """A program of programs/go, with or without cgo."""

    name: str
    cgo: bool

    def is_there(self, settings):
        return (settings.work / "go" / self.name).exists()

    def install(self, settings):
        source = "echo_cgo.go" if self.cgo else "echo_pure.go"
        run(settings, "go", "build", "-o", settings.work / "go" / self.name,
            "echo.go", source, cwd=settings.programs / "go",
            env={"CGO_ENABLED": "1" if self.cgo else "0", "GO111MODULE": "off"})


@dataclass(frozen=True)
class Maven:
    """The jars of a pom.xml in programs/java."""

    folder: str

    def is_there(self, settings):
        return any((settings.work / "java" / self.folder).glob("*.jar"))

    def install(self, settings):
        run(settings, "mvn", "-q", "-B", "-f", settings.programs / "java/pom.xml",
            "dependency:copy-dependencies",
            f"-DoutputDirectory={settings.work / 'java' / self.folder}",
            f"-DbuildDirectory={settings.work / 'java' / 'target'}")


def install_apt(settings, packages):
    """Installs Debian packages without starting their services."""
    root = [] if os.geteuid() == 0 else ["sudo"]
    has_policy = POLICY.exists()
    if not has_policy:
        script = settings.work / "policy-rc.d"
        settings.work.mkdir(parents=True, exist_ok=True)
        script.write_text("#!/bin/sh\nexit 101\n")
        run(settings, *root, "install", "-m", "755", script, POLICY)
    if "postgresql" in packages:
        # By default, the package creates and starts a server.
        script = "[ -e $0 ] || { mkdir -p ${0%/*} && echo create_main_cluster = false >$0; }"
        run(settings, *root, "sh", "-c", script, "/etc/postgresql-common/createcluster.conf")
    try:
        run(settings, *root, "apt-get", "update", "-q")
        run(settings, *root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install",
            "-q", "-y", "--no-install-recommends", *packages)
    finally:
        if not has_policy:
            run(settings, *root, "rm", "-f", POLICY)


def install(settings, needs):
    """Installs what is missing. A failure is only printed: its cases are then missing."""
    needs = [need for need in dict.fromkeys(needs) if not need.is_there(settings)]
    packages = sorted({need.package for need in needs if isinstance(need, Apt)})
    try:
        if packages:
            print(f"installing {' '.join(packages)}", flush=True)
            install_apt(settings, packages)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"apt failed: {error}; see {settings.work / 'install.log'}", flush=True)
    for need in needs:
        if isinstance(need, Apt) or need.is_there(settings):
            continue
        print(f"installing {need}", flush=True)
        try:
            need.install(settings)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"failed: {error}; see {settings.work / 'install.log'}", flush=True)
