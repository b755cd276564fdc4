"""python -m netlab.emulator DESCRIPTOR: serve the control socket that was inherited under this number."""

from __future__ import annotations

import signal
import socket
import sys

from netlab.emulator.process import serve

if __name__ == "__main__":
    # It ends when the lab closes the socket, or dies; the lab may still need it while it is being interrupted.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(socket.socket(fileno=int(sys.argv[1])))
