"""Echo server and client on asyncio; with `uvloop` as the first argument, on uvloop.

The client has one more connection, which stays open after small messages: it must not keep a
server from the others.
"""

import asyncio
import hashlib
import sys

arguments = sys.argv[1:]
if arguments[0] == "uvloop":
    import uvloop

    arguments = arguments[1:]
    run = uvloop.run
else:
    run = asyncio.run
role, host, port = arguments[0], arguments[1], int(arguments[2])


async def echo(reader, writer):
    try:
        while part := await reader.read(65_536):
            writer.write(part)
            await writer.drain()
    except ConnectionError:
        pass
    writer.close()


async def serve():
    server = await asyncio.start_server(echo, host, port)
    await server.serve_forever()


async def client(at, pattern, length):
    reader, writer = await asyncio.open_connection(host, port)
    sha, received, sent = hashlib.sha256(), 0, 0

    def chunk(limit):
        start = sent % len(pattern)
        return pattern[start:start + min(limit, length - sent)]

    for turn in range(20):
        part = chunk(turn * 37 + 1)
        writer.write(part)
        answer = await reader.readexactly(len(part))
        sha.update(answer)
        sent, received = sent + len(part), received + len(part)

    async def stream():
        nonlocal sent
        while sent < length:
            part = chunk(sent * 7919 % 65_536 + 1)
            sent += len(part)
            writer.write(part)
            await writer.drain()
        writer.write_eof()

    task = asyncio.ensure_future(stream())
    while part := await reader.read(65_536):
        sha.update(part)
        received += len(part)
    await task
    writer.close()
    return f"{at} {received} {sha.hexdigest()}"


async def begin_idle():
    """Exchanges small messages on a connection, and returns it."""
    reader, writer = await asyncio.open_connection(host, port)
    for number in range(40):
        writer.write(b"x" * (number + 1))
        await reader.readexactly(number + 1)
    return writer


async def clients():
    with open(arguments[3], "rb") as file:
        pattern = file.read()
    idle = await begin_idle()
    work = (client(at, pattern, int(arguments[4])) for at in range(int(arguments[5])))
    for line in await asyncio.gather(*work):
        print(line)
    idle.close()


run(serve() if role == "server" else clients())
