"""Fetches paths in turn on kept connections, and compares each response with the first one.

`HOST PORT SECONDS PATH...`: two threads until the time is over. A server may close a connection
between two responses, as RFC 9112 allows; a response that ends early is an error.
"""

import hashlib
import http.client
import sys
import threading
import time

host, port, seconds, paths = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:]
end = time.monotonic() + seconds
digests, failures, count = {}, [], 0


def fetch(connection, path):
    connection.request("GET", path)
    response = connection.getresponse()
    return response.status, hashlib.sha256(response.read()).hexdigest()


def fetch_again(connection, path):
    """Repeats a request once if the server has closed the kept connection."""
    try:
        return fetch(connection, path)
    except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
        connection.close()
        return fetch(connection, path)


def work():
    global count
    connection = http.client.HTTPConnection(host, port, timeout=60)
    try:
        while time.monotonic() < end and not failures:
            for path in paths:
                got = fetch_again(connection, path)
                if digests.setdefault(path, got) != got:
                    failures.append(f"{path}: {got} after {digests[path]}")
                count += 1
    except (OSError, http.client.HTTPException) as error:
        failures.append(f"{type(error).__name__}: {error}")
    connection.close()


threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for path in paths:
    print(path, *digests.get(path, ("none",)))
if failures or count < 4:
    sys.exit(f"{count} requests; {failures}")
