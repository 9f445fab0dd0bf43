import random
import resource
import select
import socket
import sys

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
# Some descriptors are for others.
count = min(int(sys.argv[2]), hard - 1200)
address = ("127.0.0.1", int(sys.argv[1]))
connections = [socket.create_connection(address) for _ in range(count)]


def exchange(number, length):
    connection = connections[number]
    sent = number.to_bytes(4, "big") * length
    connection.sendall(sent)
    received = connection.recv(len(sent), socket.MSG_WAITALL)
    assert received == sent, number


for length in (1, 2, 3):
    for number in range(count):
        exchange(number, length)
choose = random.Random(7)
# A few are active, and then others.
for _ in range(20):
    some = [choose.randrange(count) for _ in range(10)]
    for _ in range(20):
        for number in some:
            exchange(number, choose.randrange(1, 100))
for _ in range(5 * count):
    exchange(choose.randrange(count), 50)
# Several at once.
for _ in range(20):
    some = choose.sample(range(count), 50)
    for number in some:
        connections[number].sendall(number.to_bytes(4, "big"))
    for number in some:
        assert connections[number].recv(4, socket.MSG_WAITALL) == number.to_bytes(4, "big")
print(count, flush=True)
# Until the test has seen enough, and closes the input.
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(count):
        exchange(choose.randrange(count), 50)
for connection in reversed(connections):
    connection.close()
