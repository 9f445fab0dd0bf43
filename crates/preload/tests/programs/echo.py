"""Echoes what comes (`server HOST PORT`), or sends and compares (`client HOST PORT TIMES`)."""

import socket
import socketserver
import sys


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(100_000):
            self.request.sendall(data)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


role, address = sys.argv[1], (sys.argv[2], int(sys.argv[3]))
if role == "server":
    Server(address, Echo).serve_forever()
with socket.create_connection(address, timeout=50) as connection:
    for number in range(1, 300 * int(sys.argv[4]) + 1):
        sent = bytes([number % 256]) * (number * number * 7 % 100_000 + 1)
        connection.sendall(sent)
        received = bytearray()
        while len(received) < len(sent):
            part = connection.recv(len(sent) - len(received))
            assert part, f"message {number} ended early"
            received += part
        assert received == sent, f"message {number} came back with other bytes"
print("done")
