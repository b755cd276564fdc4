"""Machines with the six verbs, joined by simulated links in virtual time.

    clock = VirtualClock()
    network = SimNetwork(clock, seed=7)
    server = network.host("server", server_machine, ("192.0.2.1", 443))
    client = network.host("client", client_machine, ("198.51.100.1", 5000), up=Conditions(loss=0.1))
    client.write_to_tun([packet]); network.run_until(lambda: server.written, timeout=5)

A host does what the asyncio driver does, and nothing else: datagrams that arrive together are given to the machine
together, then the timer is judged, then everything there is to send, write and report is taken out. The path from
one host to another is the sender's `up` link and then the receiver's `down` link.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol

from qtunnel.burst import MAX_BURST, Address, Burst, Received, Transmit
from qtunnel.packet_run import Packets, flatten
from tests.sim.clock import Alarm, VirtualClock
from tests.sim.link import Conditions, SimLink

MAX_TURNS = 1000
"""How often a machine may have something new, or be due at once, on end, before we call it a livelock."""
TICK = 1e-6
"""Seconds that pass between two calls of a machine by its timer, at least."""


class Machine(Protocol):
    """The verbs. Events are whatever the machine reports."""

    def receive_from_tun(self, burst: Burst) -> object: ...
    def receive_from_udp(self, received: list[Received], now: float) -> object: ...
    def handle_timer(self, now: float) -> object: ...
    def get_timer(self) -> float | None: ...
    def datagrams_to_send(self, now: float) -> list[Transmit]: ...
    def packets_to_write(self) -> list[Packets]: ...
    def next_event(self) -> Any: ...


class SimError(AssertionError):
    """The simulated world came to an end it should not; the message has the seed and the state."""


class SimHost:
    """One machine, its addresses, and its access to the network.

    written: inner packets the machine gave to its TUN, in order. events: what it reported, with the time.
    on_event: called with each event as it is reported, for tests that act on one. kernel: what stands behind the
    TUN; given each packet, it returns its answer, and then neither is in `written`, or None.
    """

    def __init__(
        self,
        network: SimNetwork,
        name: str,
        machine: Machine | None,
        addresses: list[Address],
        links: list[SimLink],
    ) -> None:
        self.network = network
        self.name = name
        self.machine = machine
        self.addresses = addresses
        self.up, self.down = links
        self.written: list[bytes] = []
        self.events: list[tuple[float, Any]] = []
        self.on_event: Callable[[Any], None] | None = None
        self.kernel: Callable[[bytes], bytes | None] = lambda packet: None
        self.sent_sizes: list[int] = []
        self._inbox: list[tuple[bytes, Address, Address]] = []
        self._wake: Alarm | None = None
        self._timer: Alarm | None = None
        self._suspended = False
        self._spins = 0

    def write_to_tun(self, packets: list[bytes]) -> None:
        """Hand packets to the machine as if read from its TUN, at most MAX_BURST at a time."""
        machine = self._running()
        for start in range(0, len(packets), MAX_BURST):
            machine.receive_from_tun(Burst(packets[start : start + MAX_BURST], self.network.clock.now))
            self.flush()

    def flush(self) -> None:
        """Take out everything there is, and set the timer again. Call it after touching the machine directly."""
        if self.machine is None or self._suspended:
            return
        for _ in range(MAX_TURNS):
            if not self._take_out():
                break
        else:
            raise self.network.error(f"{self.name} has had something to send or say {MAX_TURNS} times on end")
        self._arm()

    def move_to(self, *addresses: Address) -> None:
        """Change the host's addresses: what is under way to the old ones gets lost."""
        self.network.rename(self, list(addresses))

    def replace(self, machine: Machine | None) -> None:
        """Put another machine, or none, in this one's place, as a restart does: all state is gone."""
        self.machine = machine
        self._inbox.clear()
        self._arm()
        self.flush()

    def suspend(self) -> None:
        """Stop as SIGSTOP does: datagrams wait in the socket, timers pass unseen."""
        self._suspended = True

    def resume(self) -> None:
        """Go on after suspend(): first what waits in the socket, then the timers."""
        self._suspended = False
        self._turn()

    def arrive(self, datagram: bytes, remote: Address, local: Address) -> None:
        """Take a datagram from the network; called by the clock."""
        self._inbox.append((datagram, remote, local))
        if self._wake is None and not self._suspended:
            self._wake = self.network.clock.call_at(self.network.clock.now, self._turn)

    def _turn(self) -> None:
        self._wake = None
        machine, now = self.machine, self.network.clock.now
        if machine is None or self._suspended:
            self._inbox = [] if machine is None else self._inbox
            return
        while self._inbox:
            machine.receive_from_udp(self._read_socket(), now)
        timer = machine.get_timer()
        if timer is not None and timer <= now:
            machine.handle_timer(now)
        self.flush()

    def _read_socket(self) -> list[Received]:
        taken, self._inbox = self._inbox[:MAX_BURST], self._inbox[MAX_BURST:]
        received: list[Received] = []
        for datagram, remote, local in taken:
            if received and received[-1].remote == remote and received[-1].local == local[0]:
                received[-1].datagrams.append(datagram)  # type: ignore[attr-defined]  # the list made below
            else:
                received.append(Received([datagram], remote, local[0]))
        return received

    def _take_out(self) -> bool:
        machine, now = self._running(), self.network.clock.now
        transmits = machine.datagrams_to_send(now)
        for transmit in transmits:
            self._transmit(transmit)
        packets = flatten(machine.packets_to_write())
        answers = []
        for packet in packets:
            answer = self.kernel(packet)
            if answer is None:
                self.written.append(packet)
            else:
                answers.append(answer)
        if answers:
            machine.receive_from_tun(Burst(answers, now))
        reported = False
        while (event := machine.next_event()) is not None:
            reported = True
            self.events.append((now, event))
            if self.on_event is not None:
                self.on_event(event)
        return bool(transmits or packets or reported)

    def _transmit(self, transmit: Transmit) -> None:
        size = transmit.segment_size or max(len(transmit.data), 1)
        for start in range(0, len(transmit.data), size):
            datagram = bytes(transmit.data[start : start + size])
            self.sent_sizes.append(len(datagram))
            self.network.carry(self, datagram, transmit.remote, transmit.local)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        when = None if self.machine is None else self.machine.get_timer()
        if when is None:
            return
        now = self.network.clock.now
        # No clock shows the same time twice: a machine that is due at once is called a moment later.
        self._spins = self._spins + 1 if when <= now else 0
        if self._spins > MAX_TURNS:
            raise self.network.error(f"the timer of {self.name} was due at once {MAX_TURNS} times on end")
        self._timer = self.network.clock.call_at(max(when, now + TICK), self._turn)

    def _running(self) -> Machine:
        if self.machine is None:
            raise self.network.error(f"{self.name} is not running")
        return self.machine


class SimNetwork:
    """Carries datagrams between hosts by address; the same seed gives the same run."""

    def __init__(self, clock: VirtualClock, *, seed: int) -> None:
        self.clock = clock
        self.seed = seed
        self.hosts: list[SimHost] = []
        self.unreachable = 0
        self._random = random.Random(seed)
        self._by_address: dict[tuple[str, int], SimHost] = {}

    def host(
        self,
        name: str,
        machine: Machine | None,
        *addresses: Address,
        up: Conditions | None = None,
        down: Conditions | None = None,
    ) -> SimHost:
        """Add a host. Without conditions its access is perfect and takes no time."""
        conditions = [Conditions(delay=0.0) if given is None else given for given in (up, down)]
        links = [SimLink(each, seed=self._random.getrandbits(64)) for each in conditions]
        host = SimHost(self, name, machine, list(addresses), links)
        self.hosts.append(host)
        self._by_address.update({address[:2]: host for address in addresses})
        host.flush()
        return host

    def rename(self, host: SimHost, addresses: list[Address]) -> None:
        """Give a host other addresses."""
        for address in host.addresses:
            del self._by_address[address[:2]]
        host.addresses = addresses
        self._by_address.update({address[:2]: host for address in addresses})

    def carry(self, sender: SimHost, datagram: bytes, remote: Address, local: str | None) -> None:
        """Send one datagram over the sender's up link, then over the receiver's down link."""
        source = self._source(sender, remote, local)
        if source is None:
            self.unreachable += 1
            return
        for arrival in sender.up.send(datagram, self.clock.now):
            self.clock.call_at(arrival, lambda: self._second_half(datagram, source, remote))

    def run_until(self, done: Callable[[], object], *, timeout: float) -> None:
        """Let time pass until done() is true; SimError if it is not within timeout virtual seconds."""
        deadline = self.clock.now + timeout
        while not done():
            following = self.clock.next_time()
            if following is None or following > deadline:
                raise self.error(f"not done after {timeout} virtual seconds")
            self.clock.step()

    def run_for(self, seconds: float) -> None:
        """Let so much virtual time pass."""
        self.clock.run_until(self.clock.now + seconds)

    def error(self, message: str) -> SimError:
        """Return an error that says how to get here again and what was seen."""
        lines = [f"{message} (seed {self.seed}, at {self.clock.now:.6f})"]
        for host in self.hosts:
            lines.append(f"  {host.name}: up {dict(host.up.counts)} down {dict(host.down.counts)}")
            lines.append(f"    wrote {len(host.written)} packets; last events {host.events[-5:]}")
        return SimError("\n".join(lines))

    def _second_half(self, datagram: bytes, source: Address, remote: Address) -> None:
        receiver = self._by_address.get(remote[:2])
        if receiver is None:
            self.unreachable += 1
            return
        for arrival in receiver.down.send(datagram, self.clock.now):
            self.clock.call_at(arrival, lambda: self._deliver(receiver, datagram, source, remote))

    def _deliver(self, receiver: SimHost, datagram: bytes, source: Address, remote: Address) -> None:
        if self._by_address.get(remote[:2]) is receiver:
            receiver.arrive(datagram, source, remote)
        else:
            self.unreachable += 1

    def _source(self, sender: SimHost, remote: Address, local: str | None) -> Address | None:
        for address in sender.addresses:
            if len(address) == len(remote) and local in (None, address[0]):
                return address
        return None
