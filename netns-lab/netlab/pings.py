"""Pings with iputils: one echo, and the largest packet that passes with Don't Fragment set."""

from __future__ import annotations

import re
from dataclasses import dataclass

from netlab.addresses import IPAddress
from netlab.host import Host

HEADERS = {4: 28, 6: 48}
"""IP and ICMP header of an echo, by IP version."""


@dataclass(frozen=True, slots=True)
class Ping:
    """What came of some echoes. Times in milliseconds, of the replies that came."""

    sent: int
    received: int
    times: tuple[float, ...]
    output: str

    @property
    def ok(self) -> bool:
        """Whether every echo was answered."""
        return self.sent > 0 and self.received == self.sent


def ping(
    host: Host, address: IPAddress, *, count: int = 1, size: int = 84, interval: float = 0.2, wait: float = 1.0
) -> Ping:
    """Send echoes as IP packets of size bytes with Don't Fragment set, and wait (seconds) for the last reply."""
    command = ping_command(address, count=count, size=size, interval=interval, wait=wait)
    done = host.run(command, timeout=count * interval + wait + 10.0, check=False)
    return parse_ping(done.output, count=count)


def ping_command(address: IPAddress, *, count: int, size: int, interval: float, wait: float) -> list[str]:
    """Return the command for echoes as IP packets of size bytes with Don't Fragment set."""
    return [
        *("ping", "-n", f"-{address.version}", "-M", "do", "-c", str(count), "-i", str(interval)),
        *("-W", str(wait), "-s", str(size - HEADERS[address.version]), str(address)),
    ]


def parse_ping(output: str, *, count: int) -> Ping:
    """Return what ping's output says; echoes that it could not even send count as sent."""
    counts = re.search(r"(\d+) packets transmitted, (\d+) received", output)
    times = tuple(float(text) for text in re.findall(r"time=([\d.]+) ms", output))
    sent, received = (int(counts[1]), int(counts[2])) if counts else (count, 0)
    return Ping(max(sent, count), received, times, output)


def largest(host: Host, address: IPAddress, *, low: int, high: int, tries: int = 2) -> int:
    """Return the largest IP packet (Don't Fragment set) that is answered, between low and high; 0 if low is not.

    A size counts as too big once tries echoes of it were lost.
    """

    def passes(size: int) -> bool:
        return any(ping(host, address, size=size, wait=0.5).ok for _ in range(tries))

    if not passes(low):
        return 0
    while low < high:
        middle = (low + high + 1) // 2
        if passes(middle):
            low = middle
        else:
            high = middle - 1
    return low
