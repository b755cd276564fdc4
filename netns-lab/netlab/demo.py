"""`lab demo`: a tunnel between two hosts, shown step by step in half a minute."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

from netlab.addresses import IPAddress
from netlab.capture import Capture
from netlab.footprint import footprint
from netlab.host import Host
from netlab.network import Network
from netlab.pings import largest, ping
from netlab.steps import StepFailed, Steps
from netlab.topology import TOPOLOGIES
from netlab.tunnels.qtunnel import POOL4, POOL6, PORT, PROFILE, QTunnelClient, QTunnelServer
from netlab.wire import UDP

FILE_SIZE: Final = 20_000_000
HTTP_PORT: Final = 8080
QUEUE_DROPS: Final = (
    "(queue-...: the sender was faster than the tunnel, and slowed down then; docs/debugging.md has all reasons)"
)

PICTURE: Final = """
   c ───────── r ───────── s ───────── h        c  the client, with `qtunnel connect`
   │        (a real        │                    r  a kernel router that knows nothing of h
   │      kernel router)   │                    s  the server, with `qtunnel serve`
   └═══ IP over HTTP/3 ════┘                    h  a host behind s, reached only through the tunnel
"""


def run() -> int:
    """Run the demonstration; 0 if every step came out as it should."""
    print(f"lab demo: two hosts reach each other through a tunnel made of HTTP/3\n{PICTURE}", flush=True)
    steps = Steps()
    with Network() as network:
        _Demo(network, steps).run()
    return steps.verdict("lab demo")


class _Demo:
    """The hosts, the tunnel and the steps."""

    def __init__(self, network: Network, steps: Steps) -> None:
        self._steps = steps
        self._directory = network.directory
        site = TOPOLOGIES["lan"].build(network)
        assert site.lan is not None
        self.c, self.s, self.lan, self.h = site.client, site.server, site.lan, site.lan.b.host
        self.path = site.path
        self.server = QTunnelServer(self.s, network.directory)
        self.client = QTunnelClient(self.c, network.directory)
        self._link = ""
        self._before = {host.name: footprint(host) for host in (self.c, self.s)}

    def run(self) -> None:
        """Show everything; a tunnel that does not come up ends it early."""
        run = self._steps.run
        run("without a tunnel, c pings h", self._unreachable)
        came_up = (
            run("on s: qtunnel serve, for the first time", self._serve)
            and run("on s: take the join link it made", self._take_link)
            and run("on c: qtunnel join, the link on standard input", self._join)
            and run(f"on c: qtunnel connect {PROFILE}", self._connect)
        )
        if not came_up:
            return
        for version in (4, 6):
            run(f"c pings s inside the tunnel, IPv{version}", partial(self._ping, _server_inner(version)))
        for version in (4, 6):
            run(f"c pings h behind s, IPv{version}", partial(self._ping, self._far_host(version)))
        for version in (4, 6):
            run(f"traceroute from c to h, IPv{version}", partial(self._traceroute, version))
        for version in (4, 6):
            run(f"DF ping sweep through the tunnel, IPv{version}", partial(self._sweep, version))
        for version in (4, 6):
            run(f"20 MB by HTTP from h to c, IPv{version}", partial(self._fetch, self.c, self.h, version))
            run(f"20 MB by HTTP from c to h, IPv{version}", partial(self._fetch, self.h, self.c, version))
        run("qtunnel status on s", partial(_status, self.server))
        run("qtunnel status on c", partial(_status, self.client))
        run("look for the token in process list and logs", self._secret)
        run("end the client (SIGTERM)", partial(self._end, self.client))
        run("end the server (SIGTERM)", partial(self._end, self.server))

    # Steps

    def _unreachable(self) -> str:
        if ping(self.c, self._far_host(4)).received:
            raise StepFailed("answered, so the tunnel would prove nothing")
        return "no answer, as it should be: only the tunnel leads there"

    def _serve(self) -> str:
        advertise = (self.lan.subnet.ipv4, self.lan.subnet.ipv6)
        self.server.start(self.path.at_server.ipv4.ip, advertise=advertise)
        return f"listens on UDP port {PORT}; pools {POOL4.network} and {POOL6.network}; advertises {advertise[0]}"

    def _take_link(self) -> str:
        file = self.server.first_link_file()
        mode = stat.S_IMODE(file.stat().st_mode)
        self._link = file.read_text().strip()
        if mode & 0o077:
            raise StepFailed(f"{file.name} can be read by others (mode {mode:o})")
        return f"{len(self._link)} characters in a file of mode {mode:o}"

    def _join(self) -> str:
        self.client.join(self._link)
        files = [file for file in self.client.profiles.rglob("*") if file.is_file()]
        modes = {stat.S_IMODE(file.stat().st_mode) for file in files}
        if not files or any(mode & 0o077 for mode in modes):
            raise StepFailed(
                f"profile files {[file.name for file in files]}, modes {[oct(mode) for mode in modes]}"
            )
        return f"profile {PROFILE}, mode {modes.pop():o}"

    def _connect(self) -> str:
        began = time.monotonic()
        self.client.connect()
        inner = self.client.wait()
        took = time.monotonic() - began
        return f"{inner.ipv4} and {inner.ipv6} on {inner.device}, MTU {inner.mtu}, after {took:.2f} s"

    def _ping(self, address: IPAddress) -> str:
        result = ping(self.c, address, count=3)
        if not result.ok:
            raise StepFailed(f"{address}: {result.received} of {result.sent} answered")
        return f"{address}: 3 of 3, best {min(result.times):.2f} ms"

    def _traceroute(self, version: int) -> str:
        target = self._far_host(version)
        done = self.c.run(
            ["traceroute", f"-{version}", "-n", "-q", "1", "-w", "2", "-m", "6", str(target)], timeout=60
        )
        hops = [line.split()[1] for line in done.stdout.splitlines()[1:]]
        if hops != [str(_server_inner(version)), str(target)]:
            raise StepFailed(f"hops {', '.join(hops)}")
        return f"hop 1 {hops[0]} (s inside the tunnel), hop 2 {hops[1]} (h)"

    def _sweep(self, version: int) -> str:
        target = self._far_host(version)
        best = largest(self.c, target, low=1000, high=1500)
        if not best:
            raise StepFailed("not even 1000 bytes passed")
        with Capture(self.path.router_host, self.path.at_router_near.device) as capture:
            result = ping(self.c, target, size=best)
        outer = [packet for packet in capture.packets() if packet.protocol == UDP and packet.length >= best]
        up = [packet.length for packet in outer if packet.destination == self.path.at_server.ipv4.ip]
        if not result.ok or not up:
            raise StepFailed(f"largest {best} bytes, but no packet of that size on the wire")
        odd = [
            packet for packet in outer if packet.is_fragment or not packet.dont_fragment or packet.length > 1500
        ]
        if odd:
            raise StepFailed(
                f"largest {best} bytes; {len(odd)} packets on the wire too big, fragments or without DF"
            )
        return f"largest {best} bytes; on the wire {min(up)} with DF, {min(up) - best} bytes of overhead"

    def _fetch(self, client: Host, server: Host, version: int) -> str:
        source, copy = self._directory / f"from-{server.name}", self._directory / f"to-{client.name}"
        source.mkdir(exist_ok=True)
        content = os.urandom(FILE_SIZE)
        (source / "file").write_bytes(content)
        bind = "::" if version == 6 else "0.0.0.0"
        daemon = server.start(
            [sys.executable, "-m", "http.server", str(HTTP_PORT), "--bind", bind, "--directory", str(source)],
            name="http",
        )
        try:
            daemon.wait_for("Serving HTTP")
            address = self.client.wait().address(version) if server is self.c else self._far_host(version)
            host = f"[{address}]" if version == 6 else str(address)
            command = ["curl", "-sS", "--globoff", "-o", str(copy), f"http://{host}:{HTTP_PORT}/file"]
            took = client.run([*command, "--connect-timeout", "5"], timeout=60).seconds
        finally:
            daemon.stop()
        sums = [hashlib.sha256(data).hexdigest() for data in (content, copy.read_bytes())]
        if sums[0] != sums[1]:
            raise StepFailed(f"SHA-256 differ: {sums[0][:12]} sent, {sums[1][:12]} received")
        return f"{took:.1f} s, {FILE_SIZE * 8 / took / 1e6:.0f} Mbit/s, SHA-256 {sums[0][:12]}... equal"

    def _secret(self) -> str:
        token = self.client.token()
        logs = [log for log in self._directory.glob("*.log") if token in log.read_text(errors="replace")]
        if logs:
            raise StepFailed(f"it is in {', '.join(log.name for log in logs)}")
        for process in Path("/proc").glob("[0-9]*"):
            try:
                shown = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if token.encode() in shown:
                raise StepFailed(f"process {process.name} shows it in the process list")
        return "nowhere"

    def _end(self, side: QTunnelServer | QTunnelClient) -> str:
        code = side.daemon.stop(timeout=10.0)
        left = sorted(set(footprint(side.host)) ^ set(self._before[side.host.name]))
        if code != 0 or left:
            raise StepFailed(f"exit code {code}; differs from before: {'; '.join(left) or 'nothing'}")
        return "exit code 0; addresses, routes, rules, nft and sysctls as before"

    # Addresses

    def _far_host(self, version: int) -> IPAddress:
        return self.lan.b.address(version)


def _server_inner(version: int) -> IPAddress:
    return POOL4.ip if version == 4 else POOL6.ip


def _status(side: QTunnelServer | QTunnelClient) -> str:
    done = side.status()
    if not done.ok:
        raise StepFailed(f"exit code {done.code}: {done.output.strip()}")
    lines = done.stdout.rstrip().splitlines()
    if any(line.split()[:1] == ["drops"] and "queue-" in line for line in lines):
        lines.append(QUEUE_DROPS)
    return "\n" + "\n".join(f"       {line}".rstrip() for line in lines) + "\n      "
