"""A sender and a receiver that both fork while bytes flow. Prints the bytes that were received in each millisecond.

T0: the receiver forks, and goes on. T1: its child receives instead. T2: the sender forks, and goes on. T3: its child sends instead.
"""

import json
import mmap
import os
import socket
import sys
import time

PHASE = float(sys.argv[1])  # seconds
MESSAGE = bytes(64 << 10)
SLOTS = int(5 * PHASE * 1000) + 1000


def wait(until):
    while (left := until - time.monotonic()) > 0:
        time.sleep(left)


def send(connection, until):
    while time.monotonic() < until:
        connection.sendall(MESSAGE)


def receive(connection, counts, start, until):
    buffer = bytearray(256 << 10)
    while (now := time.monotonic()) < until:
        received = connection.recv_into(buffer)
        if received == 0:
            return
        slot = min(int((time.monotonic() - start) * 1000), SLOTS - 1)
        counts[slot] += received


def exchange(connection):
    """So often that the connection leaves TCP."""
    for _ in range(20):
        connection.sendall(b"x")
        connection.recv(1)
        time.sleep(0.01)


def sender(address, start):
    connection = socket.create_connection(address)
    exchange(connection)
    wait(start)
    send(connection, start + 3 * PHASE)
    child = os.fork()
    if child == 0:
        wait(start + 4 * PHASE)
        send(connection, start + 5 * PHASE)
        connection.shutdown(socket.SHUT_WR)
        os._exit(0)
    send(connection, start + 4 * PHASE)
    os.waitpid(child, 0)
    os._exit(0)


def main():
    counts = memoryview(mmap.mmap(-1, 8 * SLOTS)).cast("Q")
    listener = socket.create_server(("127.0.0.1", 0))
    start = time.monotonic() + 1
    other = os.fork()
    if other == 0:
        sender(listener.getsockname(), start)
    connection, _ = listener.accept()
    for _ in range(20):
        connection.recv(1)
        connection.sendall(b"x")
    receive(connection, counts, start, start + PHASE)
    child = os.fork()
    if child == 0:
        wait(start + 2 * PHASE)
        receive(connection, counts, start, start + 6 * PHASE)
        os._exit(0)
    receive(connection, counts, start, start + 2 * PHASE)
    for process in (child, other):
        os.waitpid(process, 0)
    print(json.dumps(list(counts)[: int(5 * PHASE * 1000)]))


main()
