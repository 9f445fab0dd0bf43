"""Tracers: a program that starts under one, or that one is attached to meanwhile."""

from cases.echo import CC, c_program, client, compiled
from lab.case import Case, Program
from lab.packages import Apt

LENGTH = 60_000_000


def traced(name, needs, prefix, length):
    """`prefix` takes the place, and returns what is put before the client's command."""
    def clients(place):
        program = client(place, c_program(place), length, 2, "same")
        program.argv = [*prefix(place), *program.argv]
        return [program]

    return Case(
        name=name, needs=(CC, *needs), prepare=compiled("gcc"),
        servers=lambda place: [Program([*c_program(place), "server", place.host, place.port])],
        clients=clients,
    )


def attached(tool):
    def prefix(place):
        return ["/usr/bin/python3", place.source("attached.py"), tool, place.folder / "trace"]
    return prefix


def strace(place):
    return ["strace", "-f", "-qq", "-e", "trace=network", "-o", place.folder / "trace"]


STRACE, GDB = Apt("strace", "strace"), Apt("gdb", "gdb")
PYTHON = Apt("/usr/bin/python3", "python3")
CASES = [
    traced("strace", (STRACE,), strace, 1_000_000),
    traced("strace-attached", (STRACE, PYTHON), attached("strace"), LENGTH * 10),
    traced("gdb-attached", (GDB, PYTHON), attached("gdb"), LENGTH * 10),
    traced("valgrind", (Apt("valgrind", "valgrind"),), lambda _: ["valgrind", "-q"], 300_000),
]
