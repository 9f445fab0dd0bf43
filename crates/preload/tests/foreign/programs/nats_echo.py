"""NATS: `HOST PORT FILE BYTES`: requests to a service in the same process, by two connections."""

import asyncio
import hashlib
import sys

import nats

url, total = f"nats://{sys.argv[1]}:{sys.argv[2]}", int(sys.argv[4])
PART = 200_000


async def main():
    with open(sys.argv[3], "rb") as file:
        pattern = file.read()
    service, client = await nats.connect(url), await nats.connect(url)

    async def echo(message):
        await message.respond(message.data)

    await service.subscribe("echo", cb=echo)
    await service.flush()
    sha = hashlib.sha256()
    for number in range(200):
        answer = await client.request("echo", pattern[:number * number], timeout=20)
        sha.update(answer.data)
    received, wrong = 0, False
    while received < total:
        start = received % (len(pattern) - PART)
        answer = await client.request("echo", pattern[start:start + PART], timeout=20)
        wrong = wrong or answer.data != pattern[start:start + PART]
        received += PART
    print("WRONG" if wrong else "same", received, sha.hexdigest())
    await client.close()
    await service.close()


asyncio.run(main())
