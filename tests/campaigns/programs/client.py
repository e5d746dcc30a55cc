"""Sends so many lines to the server in this folder and prints how many a second came back."""

import os
import socket
import sys
import time

os.chdir(sys.argv[1])
lines = int(sys.argv[2])
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect("socket")
    started = time.monotonic()
    for _ in range(lines):
        connection.sendall(b"x" * 99 + b"\n")
        connection.recv(100, socket.MSG_WAITALL)
    sys.stdout.write(f"{lines / (time.monotonic() - started):.1f} lines/s\n")
