"""gRPC without generated code: `server HOST PORT`, or `client HOST PORT FILE BYTES`.

The client makes unary calls, then one call with a stream in both directions, and prints digests.
"""

import hashlib
import sys
from concurrent import futures

import grpc

role, target = sys.argv[1], f"{sys.argv[2]}:{sys.argv[3]}"
LIMITS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
PART = 200_000


class Echo(grpc.GenericRpcHandler):
    def service(self, call):
        if call.method == "/Echo/Unary":
            return grpc.unary_unary_rpc_method_handler(lambda request, _: request)
        return grpc.stream_stream_rpc_method_handler(lambda requests, _: requests)


if role == "server":
    server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[Echo()], options=LIMITS)
    server.add_insecure_port(target)
    server.start()
    server.wait_for_termination()

with open(sys.argv[4], "rb") as file:
    pattern = file.read()
total = int(sys.argv[5])


def parts():
    for at in range(0, total, PART):
        start = at % (len(pattern) - PART)
        yield pattern[start:start + min(PART, total - at)]


with grpc.insecure_channel(target, LIMITS) as channel:
    unary, stream = channel.unary_unary("/Echo/Unary"), channel.stream_stream("/Echo/Stream")
    for size in (1, 1000, 100_000, 900_000):
        answers = {hashlib.sha256(unary(pattern[:size])).hexdigest() for _ in range(20)}
        print(size, *answers)
    sent, received = hashlib.sha256(), hashlib.sha256()
    for part in parts():
        sent.update(part)
    for part in stream(parts()):
        received.update(part)
    print("same" if sent.digest() == received.digest() else "WRONG", received.hexdigest())
