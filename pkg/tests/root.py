"""A root of Debian: a folder with its files, commands in it, and nodes."""

import os
import shutil
import subprocess
import time
from pathlib import Path

# Far more than a step takes on a loaded machine.
TIMEOUT = 120
PATHS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Folders of a root that are file systems of their own.
MOUNTS = ("proc", "run", "tmp")
# What package managers write for themselves, and the backups of useradd.
OWN_FILES = ("var/lib/dpkg/", "var/lib/apt/", "var/cache/", "var/log/", "etc/.pwd.lock")


class Failed(Exception):
    """A command did not do what the test expects."""


class Root:
    """A fresh root, unpacked from an archive into a folder of the mount namespace."""

    def __init__(self, archive, folder):
        self.folder = folder
        folder.mkdir()
        subprocess.run(["tar", "-xf", archive, "-C", folder, "--numeric-owner"], check=True)
        for name in MOUNTS:
            kind = "proc" if name == "proc" else "tmpfs"
            subprocess.run(["mount", "-t", kind, kind, folder / name], check=True)
        (folder / "tmp").chmod(0o1777)

    def remove(self):
        """Frees the memory of its files."""
        for name in MOUNTS:
            subprocess.run(["umount", "--lazy", self.folder / name], check=True)
        shutil.rmtree(self.folder)

    def path(self, inside):
        return self.folder / str(inside).lstrip("/")

    def command(self, words, user="root", **variables):
        """Returns the command that runs `words` as a user, with a login's environment."""
        home = "/root" if user == "root" else self.home(user)
        environment = {"HOME": home, "PATH": f"{home}/.local/bin:{PATHS}", "LANG": "C.UTF-8"}
        environment |= {"USER": user, "NO_COLOR": "1", **variables}
        assignments = [f"{name}={value}" for name, value in environment.items()]
        chroot = ["chroot", f"--userspec={user}:{user}", str(self.folder)]
        return [*chroot, "env", "-i", *assignments, *words]

    def home(self, user):
        for line in self.path("etc/passwd").read_text().splitlines():
            fields = line.split(":")
            if fields[0] == user:
                return fields[5]
        raise Failed(f"there is no user {user}")

    def has_user(self, user):
        lines = self.path("etc/passwd").read_text().splitlines()
        return any(line.startswith(f"{user}:") for line in lines)

    def run(self, *words, user="root", code=0, **variables):
        """Runs a command to its end, and returns its output and errors in one text."""
        ran = subprocess.run(
            self.command(words, user, **variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT,
            text=True,
        )
        if ran.returncode != code:
            line = " ".join(words)
            raise Failed(f"{user}: {line}: exit code {ran.returncode}, not {code}\n{ran.stdout}")
        return ran.stdout

    def start(self, words, log, user="root", **variables):
        """Starts a command in the background, with its output in a file."""
        command = self.command(words, user, **variables)
        with open(log, "w") as output:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    def add_user(self, name):
        self.run("useradd", "--create-home", "--shell", "/bin/sh", name)

    def copy(self, file, inside):
        shutil.copy(file, self.path(inside))

    def files(self):
        """Returns the paths of all files and folders that no mount hides."""
        found = set()
        for folder, folders, names in os.walk(self.folder):
            below = Path(folder).relative_to(self.folder)
            if below == Path("."):
                folders[:] = [name for name in folders if name not in MOUNTS]
            found |= {str(below / name) for name in [*folders, *names]}
        return {path for path in found if not path.startswith(OWN_FILES) and path[-1] != "-"}


def until(what, holds):
    """Waits until `holds()` is true."""
    end = time.monotonic() + TIMEOUT
    while not holds():
        if time.monotonic() > end:
            raise Failed(f"did not happen: {what}")
        time.sleep(0.05)


def expect(condition, what):
    if not condition:
        raise Failed(what)
