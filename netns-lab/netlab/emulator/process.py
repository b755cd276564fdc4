"""The emulator's process: one loop over all queues, driven by a tick, told what to do over a socket.

A wake-up costs far more than a packet (about 30 us against 3), so nothing is done per packet: every half
millisecond all that has come is read, and all that is due is released by one batch verdict per queue. The kernel's
time stamps keep the model exact in spite of that, and of late wake-ups; only the release itself can be late.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import select
import socket
import time
from typing import Any, Final

from netlab import namespace
from netlab.emulator.line import Fate, Line
from netlab.emulator.netfilter_queue import NetfilterQueue
from netlab.shape import Shape

TICK: Final = 0.0005
PR_SET_TIMERSLACK: Final = 29
SO_TIMESTAMP: Final = 29
REALTIME_PRIORITY: Final = 10


class Port:
    """One direction of a link: the kernel's queue and the model that decides about it."""

    def __init__(self, queue: NetfilterQueue, shape: Shape) -> None:
        self.queue = queue
        self.line = Line(shape)
        self._last_arrival = 0.0

    def read(self, now: float, offset: float) -> None:
        """Take in what has come. offset: the wall clock minus the monotonic one, as stamps are wall clock."""
        arrive, queue = self.line.arrive, self.queue
        for packet, length, stamp in queue.receive():
            at = min(stamp - offset, now) if stamp else now
            at = self._last_arrival = max(at, self._last_arrival)
            fate = arrive(packet, length, at)
            if fate is Fate.DROPPED:
                queue.drop(packet)
            elif fate is Fate.PASSED:
                queue.accept(packet)

    def release(self, now: float) -> None:
        """Let go what is due."""
        if (due := self.line.release(now)) is not None:
            self.queue.accept_up_to(due[0])


class Emulator:
    """All ports, and the control socket: one JSON object a message, one reply each; its end is our end."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._ports: dict[str, Port] = {}
        self._ended = False

    def run(self) -> None:
        """Serve until the other side of the control socket is closed."""
        while not self._ended:
            if self._wait():
                self._obey()
            began = time.monotonic()
            offset = time.time() - began
            for port in self._ports.values():
                port.read(began, offset)
            now = time.monotonic()
            for port in self._ports.values():
                port.release(now)

    def _wait(self) -> bool:
        """Sleep until there may be something to do; True if a request has come."""
        dues = [due for port in self._ports.values() if (due := port.line.next_due()) is not None]
        if not dues:
            control = self._control.fileno()
            descriptors = [control, *(port.queue.fileno() for port in self._ports.values())]
            return control in select.select(descriptors, [], [])[0]
        # A packet not yet read is due no earlier than a whole delay after it came, so there is no hurry to read.
        patience = min(port.line.shape.delay_s for port in self._ports.values()) / 2
        pause = max(TICK, min(min(dues) - time.monotonic(), patience))
        return bool(select.select([self._control], [], [], pause)[0])

    def _obey(self) -> None:
        data = self._control.recv(65536)
        if not data:
            self._ended = True
            return
        try:
            reply = self._answer(json.loads(data))
        except (OSError, ValueError, KeyError, TypeError) as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        self._control.send(json.dumps(reply).encode())

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request.get("port", "")
        match request["do"]:
            case "add":
                with namespace.entered(request["namespace"]):
                    queue = NetfilterQueue(request["queue"])
                self._ports[name] = Port(queue, Shape.from_dict(request["shape"]))
            case "change":
                self._ports[name].line.change(Shape.from_dict(request["shape"]))
            case "cpu":
                return {"cpu_s": time.process_time()}
            case unknown:
                raise ValueError(f"cannot do {unknown!r}")
        return {}


def serve(control: socket.socket) -> None:
    """Set the process up for precise sleeping and serve."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0)  # nanoseconds; the default adds 50 us to each sleep
    with contextlib.suppress(OSError):  # not allowed everywhere; the emulator is then late more often
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(REALTIME_PRIORITY))
    gc.freeze()
    gc.disable()  # nothing here makes cycles
    # The kernel stamps packets only while some socket has asked for it.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stamps:
        stamps.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMP, 1)
        Emulator(control).run()
