"""ZeroMQ: `server HOST PORT`, or `client HOST PORT FILE BYTES`: requests of many sizes.

The server answers on a ROUTER socket. The client uses a REQ socket, then a DEALER socket with
many messages in flight.
"""

import hashlib
import sys

import zmq

role, address = sys.argv[1], f"tcp://{sys.argv[2]}:{sys.argv[3]}"
PART = 100_000
context = zmq.Context()
if role == "server":
    router = context.socket(zmq.ROUTER)
    router.bind(address)
    while True:
        router.send_multipart(router.recv_multipart())

with open(sys.argv[4], "rb") as file:
    pattern = file.read()
total = int(sys.argv[5])
request = context.socket(zmq.REQ)
request.connect(address)
for number in range(300):
    request.send(pattern[:number * number])
    print(number, hashlib.sha256(request.recv()).hexdigest())
dealer = context.socket(zmq.DEALER)
dealer.connect(address)
sent = received = 0
wrong = False
while received < total:
    while sent < total and sent - received < 8 * PART:
        start = sent % (len(pattern) - PART)
        dealer.send(pattern[start:start + PART])
        sent += PART
    start = received % (len(pattern) - PART)
    wrong = wrong or dealer.recv() != pattern[start:start + PART]
    received += PART
print("WRONG" if wrong else "same", received)
context.destroy(linger=1000)
