"""Sets and gets values of every size, one by one and pipelined: memcached_client.py HOST PORT TIMES"""

import socket
import sys

SIZES = [1, 10, 100, 1000, 8000, 70000, 500000, 900000]

address = (sys.argv[1], int(sys.argv[2]))
connections = [socket.create_connection(address, 30) for _ in range(5)]
files = [connection.makefile("rb") for connection in connections]


def value(size):
    block = bytes((size * 7 + at * 31 >> 3) & 255 for at in range(999))
    return (block * (size // 999 + 1))[:size]


def expect(number, data):
    assert files[number].readline() == b"VALUE k%d 0 %d\r\n" % (len(data), len(data))
    assert files[number].read(len(data) + 2) == data + b"\r\n"
    assert files[number].readline() == b"END\r\n"


for turn in range(30 * int(sys.argv[3])):
    writer, reader = turn % 5, (turn + 1) % 5
    # The largest values a few times only.
    for size in SIZES if turn < 3 else SIZES[:5]:
        data = value(size)
        connections[writer].sendall(b"set k%d 0 0 %d\r\n%b\r\n" % (size, size, data))
        assert files[writer].readline() == b"STORED\r\n"
        connections[reader].sendall(b"get k%d\r\n" % size)
        expect(reader, data)

for _ in range(int(sys.argv[3])):
    connections[0].sendall(b"get k10\r\n" * 5000)
    for _ in range(5000):
        expect(0, value(10))
print("done")
