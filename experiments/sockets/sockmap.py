"""Lets the kernel pass what one socket sends straight to the receive queue of the other (eBPF sockmap).

The sockets are standard input and output. A line on standard error says that it is done; it lasts until standard error is closed.
"""

import ctypes
import os
import select
import socket
import struct
import sys

MAP_CREATE, MAP_UPDATE, PROG_LOAD, PROG_ATTACH = 0, 2, 5, 8
SOCKMAP, SK_MSG, SK_MSG_VERDICT = 15, 16, 7
LOCAL_PORT = 64  # in struct sk_msg_md
REDIRECT_MAP = 60  # bpf_msg_redirect_map
INGRESS = 1
SYSTEM_CALL = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
libc = ctypes.CDLL(None, use_errno=True)


def bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
    result = libc.syscall(SYSTEM_CALL, command, buffer, 128)
    if result < 0:
        number = ctypes.get_errno()
        sys.exit(f"bpf({command}): {os.strerror(number)}")
    return result


def instruction(code, destination=0, source=0, offset=0, immediate=0):
    return struct.pack("<BBhi", code, source << 4 | destination, offset, immediate)


def main():
    sockets = [socket.socket(fileno=number) for number in (0, 1)]
    table = bpf(MAP_CREATE, struct.pack("<IIII", SOCKMAP, 4, 4, 2))
    program = b"".join([
        instruction(0x61, 0, 1, LOCAL_PORT),  # r0 = message->local_port
        instruction(0xB7, 3, immediate=1),  # r3 = 1, the other socket
        instruction(0x15, 0, offset=1, immediate=sockets[0].getsockname()[1]),  # unless it is the first one's
        instruction(0xB7, 3, immediate=0),  # r3 = 0
        instruction(0x18, 2, 1, immediate=table),  # r2 = table
        instruction(0),
        instruction(0xB7, 4, immediate=INGRESS),  # r4 = INGRESS
        instruction(0x85, immediate=REDIRECT_MAP),
        instruction(0x95),
    ])
    text = ctypes.create_string_buffer(program, len(program))
    licence = ctypes.create_string_buffer(b"GPL")
    log = ctypes.create_string_buffer(65536)
    attributes = struct.pack(
        "<IIQQIIQ", SK_MSG, len(program) // 8, ctypes.addressof(text), ctypes.addressof(licence), 1, 65536, ctypes.addressof(log)
    )
    verdict = bpf(PROG_LOAD, attributes)
    bpf(PROG_ATTACH, struct.pack("<IIII", table, verdict, SK_MSG_VERDICT, 0))
    for key, one in enumerate(sockets):
        number = ctypes.c_uint(key)
        value = ctypes.c_uint(one.fileno())
        bpf(MAP_UPDATE, struct.pack("<IIQQQ", table, 0, ctypes.addressof(number), ctypes.addressof(value), 0))
    os.write(2, b"done\n")
    # An error is reported when the other end of the pipe closes.
    closed = select.poll()
    closed.register(2, 0)
    closed.poll()


main()
