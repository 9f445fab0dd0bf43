"""Runs a client, and attaches a tracer to it meanwhile: `strace|gdb LOG COMMAND...`."""

import subprocess
import sys
import time

tool, log, command = sys.argv[1], sys.argv[2], sys.argv[3:]
client = subprocess.Popen(command)
time.sleep(0.3)
if tool == "strace":
    tracer = subprocess.Popen(["strace", "-f", "-qq", "-o", log, "-p", str(client.pid)])
    time.sleep(1.5)
    tracer.terminate()
else:
    commands = ["-ex", "info threads", "-ex", "bt", "-ex", "detach", "-ex", "quit"]
    with open(log, "wb") as output:
        tracer = subprocess.Popen(
            ["gdb", "-nx", "-batch", "-p", str(client.pid), *commands],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )
tracer.wait(60)
sys.exit(client.wait(100))
