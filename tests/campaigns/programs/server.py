"""Answers each line on the Unix socket `socket` in the folder that it is given."""

import os
import socketserver
import sys


class Echo(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            self.wfile.write(line)


# A socket's path has little room: a relative one always fits.
os.chdir(sys.argv[1])
with socketserver.UnixStreamServer("socket", Echo) as server:
    server.serve_forever()
