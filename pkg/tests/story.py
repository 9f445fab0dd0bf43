"""Plays the transcript of README.md: each terminal in it is a user of the root.

A line `NAME$ COMMAND` is run in a shell of the user NAME, and must print the lines below it. There,
`…` matches any characters, and a line `…` any lines.
"""

import re
from pathlib import Path

from root import TIMEOUT, Failed, expect, until

README = Path(__file__).resolve().parents[2] / "README.md"
FOLDER = "/srv/story"
STEP = re.compile(r"^([a-z]+)\$ (.*)$")


def steps(page):
    """Returns user, command and expected lines of each step."""
    found = []
    kind = None
    for line in page.splitlines():
        if line.startswith("```"):
            kind = line[3:] if kind is None else None
            continue
        if kind != "console":
            continue
        step = STEP.match(line)
        if step:
            found.append((step[1], step[2], []))
        else:
            found[-1][2].append(line)
    return found


def fits(expected, lines):
    """Returns true if the lines are those that the page shows."""
    if not expected:
        return not lines
    first, *others = expected
    if first == "…":
        return any(fits(others, lines[skip:]) for skip in range(len(lines) + 1))
    pattern = ".*".join(re.escape(part) for part in first.split("…"))
    return bool(lines) and bool(re.fullmatch(pattern, lines[0])) and fits(others, lines[1:])


class Story:
    """The terminals of the transcript."""

    def __init__(self, root, logs):
        self.root = root
        self.log = logs / "up.log"
        self.exports = {}
        self.node = None

    def shell(self, user, command):
        exports = "; ".join(self.exports.setdefault(user, []))
        return ["sh", "-c", f"cd {FOLDER} && {exports or ':'}; {command}"]

    def play(self, user, command, expected):
        if command.startswith("export "):
            self.exports.setdefault(user, []).append(command)
        elif command.startswith("levada up"):
            words = self.shell(user, f"exec {command}")
            self.node = self.root.start(words, self.log, user)
            until(f"{command} prints what the page shows", lambda: self.is_ready(expected))
        else:
            # The exit code is part of no page: a refusal is expected, too.
            words = self.shell(user, f"exec 2>&1; {command}; true")
            output = self.root.run(*words, user=user)
            if not fits(expected, output.splitlines()):
                page = "\n".join(expected)
                raise Failed(f"{user}$ {command}\nthe page shows:\n{page}\nprinted:\n{output}")

    def is_ready(self, expected):
        expect(self.node.poll() is None, f"the node ended: {self.log.read_text()}")
        return fits(expected, self.log.read_text().splitlines())


def play(root, logs):
    """Plays README.md in `root`; its users are made here."""
    root.path(FOLDER).mkdir(mode=0o1777)
    root.path(FOLDER).chmod(0o1777)
    found = steps(README.read_text())
    expect(len(found) > 7, "README.md has no transcript")
    for user in sorted({user for user, _, _ in found}):
        root.add_user(user)
    story = Story(root, logs)
    for user, command, expected in found:
        story.play(user, command, expected)
    # The last step stops the node.
    expect(story.node.wait(TIMEOUT) == 0, f"the node failed: {story.log.read_text()}")
