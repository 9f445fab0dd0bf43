"""The description of a case: a server, its clients, and what they must print."""

import hashlib
import signal
from dataclasses import dataclass, field
from typing import Callable, Optional

# The seed of the pattern is its length, a prime: chunks of 2^n bytes never repeat.
PATTERN_BYTES = 1_000_003


class Wrong(Exception):
    """A program sent, received or printed wrong bytes."""


@dataclass
class Program:
    """A command. `facts` returns the part of the output that must not change."""

    argv: list
    env: dict = field(default_factory=dict)
    stdin: Optional[str] = None
    # For a server: returns true when it is ready. Without it, a listening socket suffices.
    ready: Optional[Callable] = None
    # For a server that must not be ready by a listening socket of another port.
    port: Optional[int] = None
    stop: int = signal.SIGTERM
    # For a client: takes the place and standard output, returns a text or raises Wrong.
    facts: Callable = lambda place, output: output
    # False for a helper that never runs with the library.
    may_be_fast: bool = True
    # Seconds that a client may take at most without the library.
    timeout: float = 60


@dataclass
class Case:
    """A server and its clients. Each function takes a Place."""

    name: str
    servers: Callable
    clients: Callable
    needs: tuple = ()
    prepare: Callable = lambda place: None
    # A client that works for some seconds or without an end, for the kill variants.
    traffic: Optional[Callable] = None
    # A client that transfers place.large_bytes.
    large: Optional[Callable] = None
    # The signal that makes the server reload, and a client that works meanwhile.
    reload: Optional[tuple] = None
    # Part of the short form.
    short: bool = False
    # True if everything runs as an unprivileged user.
    unprivileged: bool = False
    note: str = ""


def pattern():
    """Returns the bytes that all cases send."""
    parts = []
    for counter in range(PATTERN_BYTES // 32 + 1):
        parts.append(hashlib.sha256(counter.to_bytes(4, "big")).digest())
    return b"".join(parts)[:PATTERN_BYTES]


def digest(content):
    """Returns the SHA-256 of bytes, in hex."""
    return hashlib.sha256(content).hexdigest()


def file_digest(path):
    """Returns the SHA-256 of a file, in hex."""
    sha = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            sha.update(part)
    return sha.hexdigest()


def repeated_digest(content, length):
    """Returns the SHA-256 of `length` bytes that repeat `content`."""
    sha = hashlib.sha256()
    for _ in range(length // len(content)):
        sha.update(content)
    sha.update(content[: length % len(content)])
    return sha.hexdigest()


def expect(condition, text):
    """Raises Wrong with the text if the condition is false."""
    if not condition:
        raise Wrong(text)
