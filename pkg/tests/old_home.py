"""A home that an earlier version has made, and the node of it.

Its databases have the schemas of commit 905f316.
"""

import json
import sqlite3
from pathlib import Path

from root import TIMEOUT, expect, until

FIXTURES = Path(__file__).resolve().parents[2] / "crates/node/tests/fixtures"
DATABASES = {"node.db": "node-v3.db.sql", "known.db": "known-v2.db.sql"}
UP = ["levada", "up", "--demo", "--name", "old", "--listen", "127.0.0.1:5390"]
UP += ["--http", "127.0.0.1:0", "--no-announce"]


class OldHome:
    """A home with the databases of an earlier version, whose node a user runs."""

    def __init__(self, root, logs, user, folder):
        self.root = root
        self.log = logs / "old.log"
        self.user = user
        self.folder = folder
        self.node = None
        for name, fixture in DATABASES.items():
            file = root.path(folder) / name
            connection = sqlite3.connect(file)
            connection.executescript((FIXTURES / fixture).read_text())
            connection.close()
            root.run("chown", f"{user}:{user}", f"{folder}/{name}")

    def version(self, name):
        connection = sqlite3.connect(self.root.path(self.folder) / name)
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        connection.close()
        return found

    def levada(self, *words, code=0):
        variables = {"LEVADA_HOME": self.folder}
        return self.root.run("levada", *words, user=self.user, code=code, **variables)

    def start(self):
        variables = {"LEVADA_HOME": self.folder}
        self.node = self.root.start(UP, self.log, self.user, **variables)
        until("the node of the old home answers", self.is_ready)

    def is_ready(self):
        expect(self.node.poll() is None, f"the node ended: {self.log.read_text()}")
        return "Invite another identity" in self.log.read_text()

    def stop(self):
        self.levada("stop")
        expect(self.node.wait(TIMEOUT) == 0, f"the node failed: {self.log.read_text()}")

    def check(self):
        """Checks that the running node serves, and has the data of the earlier version."""
        identity = self.levada("id").strip()
        ran = self.levada("run", f"{identity}@127.0.0.1:5390/exec", "--", "uname", "-s")
        expect(ran == "Linux\n", f"exec printed {ran}")
        sessions = json.loads(self.levada("sessions", "--json"))["sessions"]
        identifiers = {session["session"] for session in sessions}
        old = {f"0{digit}" * 16 for digit in range(1, 7)}
        expect(old <= identifiers, f"sessions of the old home are missing in {identifiers}")
        names = self.levada("peers", "ls")
        expect("tower" in names and "box" in names, f"pins of the old home are missing in {names}")
        return identity

    def check_migrated(self):
        expect(self.version("node.db") > 3, "node.db was not migrated")
