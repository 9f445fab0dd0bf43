"""Connections that are open and quiet. Prints what each takes, in bytes, and how often the monitor was woken meanwhile.

The two ends are two processes; the connections leave TCP, then carry much at once, then nothing.
"""

import json
import os
import socket
import sys
import time

COUNT = int(sys.argv[1])
QUIET = float(sys.argv[2])  # seconds
MUCH = bytes(700_000)


def shared():
    """The shared memory of the whole system: that of rings is allocated before it is used."""
    with open("/proc/meminfo") as memory:
        line = next(line for line in memory if line.startswith("Shmem:"))
    return int(line.split()[1]) * 1024


def private(process):
    """What the library takes of a process's own memory, and the program beside it."""
    with open(f"/proc/{process}/status") as status:
        line = next(line for line in status if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def monitor():
    """The process that listens at the monitor's socket."""
    path = os.environ.get("LEVADA_FAST_SOCKET")
    if path is None:
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(path)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[:4], sys.byteorder)


def wakeups(process):
    with open(f"/proc/{process}/status") as status:
        line = next(line for line in status if line.startswith("voluntary_ctxt_switches:"))
    return int(line.split()[1])


def far(listener):
    """Sends back what comes, once for each message, in the order of the connections."""
    connections = [listener.accept()[0] for _ in range(COUNT)]
    listener.close()
    for length in [1] * 4 + [len(MUCH)]:
        for connection in connections:
            message = connection.recv(length, socket.MSG_WAITALL)
            connection.sendall(message)
    # Until the other end has gone.
    connections[0].recv(1)
    os._exit(0)


def exchange(connections, message):
    for connection in connections:
        connection.sendall(message)
        connection.recv(len(message), socket.MSG_WAITALL)


def main():
    listener = socket.create_server(("127.0.0.1", 0), backlog=COUNT)
    child = os.fork()
    if child == 0:
        far(listener)
    address = listener.getsockname()
    listener.close()
    connections = [socket.create_connection(address) for _ in range(COUNT)]
    processes = [os.getpid(), child]
    own = sum(map(private, processes))
    without = shared()
    for _ in range(4):
        exchange(connections, b"x")
        time.sleep(0.5)
    first = shared() - without
    exchange(connections, MUCH)
    grown = shared() - without
    server = monitor()
    time.sleep(1)
    before = server and wakeups(server)
    # As programs do that wait for the next request.
    connections[0].settimeout(QUIET)
    try:
        connections[0].recv(1)
    except TimeoutError:
        pass
    woken = server and wakeups(server) - before
    quiet = shared() - without
    own = sum(map(private, processes)) - own
    per = [value / COUNT for value in (first, grown, quiet, max(own, 0))]
    print(json.dumps([*per, woken or 0]))


main()
