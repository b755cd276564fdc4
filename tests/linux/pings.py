"""Pings: one exchange, or one that goes on and knows when each answer came."""

from __future__ import annotations

import re
import time

from tests.linux.daemons import PATIENCE, Daemon, wait_until
from tests.linux.namespaces import Namespace
from tests.linux.site import Site


def ping(host: Namespace, address: str, *options: str, count: int = 3, patience: int = 5) -> int:
    """Ping; return how many answers came. Ends with the last one, or after patience seconds."""
    shown = host.run(
        f"ping -n -q -i 0.1 -c {count} -w {patience} {' '.join(options)} {address}",
        check=False,
        timeout=patience + 20,
    )
    found = re.search(r"(\d+) received", shown)
    return int(found[1]) if found else 0


def assert_reaches(host: Namespace, *addresses: str) -> None:
    for address in addresses:
        assert ping(host, address, count=2) == 2, f"{host.name} does not reach {address}"


class Pinger:
    """A ping every 50 ms, without an end. Times are those of time.time()."""

    def __init__(self, site: Site, host: Namespace, address: str, *, interval: float = 0.05) -> None:
        name = f"ping-{host.name.rpartition('-')[2]}-{len(site.daemons)}"
        self._daemon: Daemon = site.start(host, ["ping", "-n", "-D", "-i", str(interval), address], log=name)

    def answers(self) -> list[float]:
        """Return when each answer came."""
        return [float(found) for found in re.findall(r"^\[(\d+\.\d+)\] .*bytes from", self._daemon.text(), re.M)]

    def wait_for_answer_after(self, moment: float, *, timeout: float = PATIENCE) -> float:
        """Wait for an answer later than a moment; return how much later."""
        wait_until(lambda: self.answers()[-1:] > [moment], "an answer to a ping", timeout=timeout)
        return next(answer for answer in self.answers() if answer > moment) - moment

    def stop(self) -> None:
        self._daemon.destroy()


def now() -> float:
    return time.time()
