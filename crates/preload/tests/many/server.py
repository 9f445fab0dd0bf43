import resource
import select
import socket
import sys

hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
edges = select.EPOLLET if sys.argv[1] == "edge" else 0
listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
listener.setblocking(False)
print(listener.getsockname()[1], flush=True)
poll = select.epoll()
poll.register(listener, select.EPOLLIN)
connections = {}
first = None
while first is None or first in connections:
    for number, _ in poll.poll():
        if number == listener.fileno():
            connection = listener.accept()[0]
            connection.setblocking(False)
            connections[connection.fileno()] = connection
            first = first or connection.fileno()
            poll.register(connection, select.EPOLLIN | edges)
            continue
        connection = connections[number]
        while True:
            try:
                received = connection.recv(4096)
            except BlockingIOError:
                break
            if not received:
                poll.unregister(connection)
                del connections[number]
                break
            connection.sendall(received)
            if not edges:
                break
