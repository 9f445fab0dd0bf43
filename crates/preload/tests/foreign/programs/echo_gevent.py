"""Echo server and client on gevent, with the socket module replaced."""

from gevent import monkey

monkey.patch_all()

import hashlib  # noqa: E402
import socket  # noqa: E402
import sys  # noqa: E402

import gevent  # noqa: E402
from gevent.server import StreamServer  # noqa: E402

role, address = sys.argv[1], (sys.argv[2], int(sys.argv[3]))


def echo(connection, _):
    try:
        while part := connection.recv(65_536):
            connection.sendall(part)
    except OSError:
        pass
    connection.close()


def client(at, pattern, length):
    connection = socket.create_connection(address)
    sha, received, sent = hashlib.sha256(), 0, 0

    def chunk(limit):
        start = sent % len(pattern)
        return pattern[start:start + min(limit, length - sent)]

    for turn in range(20):
        part = chunk(turn * 37 + 1)
        connection.sendall(part)
        answer = connection.recv(len(part), socket.MSG_WAITALL) if part else b""
        while len(answer) < len(part):
            answer += connection.recv(len(part) - len(answer))
        sha.update(answer)
        sent, received = sent + len(part), received + len(part)

    def stream():
        nonlocal sent
        while sent < length:
            part = chunk(sent * 7919 % 65_536 + 1)
            sent += len(part)
            connection.sendall(part)
        connection.shutdown(socket.SHUT_WR)

    task = gevent.spawn(stream)
    while part := connection.recv(65_536):
        sha.update(part)
        received += len(part)
    task.get()
    connection.close()
    return f"{at} {received} {sha.hexdigest()}"


if role == "server":
    StreamServer(address, echo).serve_forever()
else:
    with open(sys.argv[4], "rb") as file:
        content = file.read()
    tasks = [gevent.spawn(client, at, content, int(sys.argv[5])) for at in range(int(sys.argv[6]))]
    for task in tasks:
        print(task.get())
