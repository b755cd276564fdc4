"""A server and its clients in a simulated network: real tunnels, virtual time, everything from one seed.

    world = World(seed=7, identity=identity)
    alice = world.add_client("alice", up=Conditions(delay=0.02, loss=0.1))
    world.wait_up(alice)

Only TLS draws from the operating system, where a seed cannot reach: handshakes of one seed may differ by a byte or
two, and everything else is the same.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_network
from typing import Any

from qtunnel.burst import Address
from qtunnel.config import ClientConfig, ServerConfig, User
from qtunnel.quic.settings import ConnectionSettings, EndpointSettings
from qtunnel.state.identity import ServerIdentity, certificate_fingerprint
from qtunnel.tunnel.client import ClientState, ClientTunnel
from qtunnel.tunnel.events import Closed, CloseReason, TunnelEvent
from qtunnel.tunnel.server import ServerTunnel
from tests.sim.clock import VirtualClock
from tests.sim.link import Conditions, udp_payload
from tests.sim.packets import answer_ping
from tests.sim.pair import SimHost, SimNetwork

SERVER_NAME = "sim.qtunnel.invalid"
SERVER4: Address = ("192.0.2.1", 443)
SERVER6: Address = ("2001:db8::1", 443, 0, 0)
POOL4 = IPv4Interface("10.77.1.1/24")
POOL6 = IPv6Interface("fd77::1/64")
BEHIND4 = IPv4Address("198.18.5.5")
BEHIND6 = IPv6Address("2001:db8:5::5")
EVERYTHING = (ip_network("0.0.0.0/0"), ip_network("::/0"))
LAN_DELAY = 0.01


def token_of(user: str) -> str:
    return f"token-of-{user}-0123456789"


def make_user(name: str, **more: Any) -> User:
    digest = hashlib.sha256(token_of(name).encode()).hexdigest()
    return User(name=name, token_sha256=digest, **more)


@dataclass(slots=True, kw_only=True)
class World:
    """One simulated network with one server. udp_payload: the size both ends are told, in bytes."""

    seed: int
    identity: ServerIdentity
    users: Iterable[User] = field(default_factory=lambda: (make_user("alice"), make_user("bob")))
    udp_payload: int = udp_payload(1500, 6)
    server_config: dict[str, Any] = field(default_factory=dict)
    server_settings: dict[str, Any] = field(default_factory=dict)
    network: SimNetwork = field(init=False)
    server: SimHost = field(init=False)
    _random: random.Random = field(init=False)
    _next_host: int = 1
    _again: dict[SimHost, Callable[[], ClientTunnel]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.network = SimNetwork(VirtualClock(), seed=self.seed)
        self._random = random.Random(self.seed ^ 0x5EED)
        self.server = self.network.host("server", self.make_server(), SERVER4, SERVER6)
        self.server.kernel = answer_ping

    @property
    def now(self) -> float:
        return self.network.clock.now

    def make_server(self, leases: dict[str, int] | None = None) -> ServerTunnel:
        """Return a new server with the same identity, as after a restart."""
        config = ServerConfig(
            pool4=POOL4,
            pool6=POOL6,
            **{"advertise": EVERYTHING, "server_name": SERVER_NAME, **self.server_config},
        )
        secret = hashlib.sha256(b"reset").digest()
        settings = EndpointSettings(
            random_bytes=self._random.randbytes,
            max_udp_payload=self.udp_payload,
            certificate=self.identity.certificate_pem,
            private_key=self.identity.private_key_pem,
            stateless_reset_key=secret,
            retry_key=self._random.randbytes(32),
            **self.server_settings,
        )
        return ServerTunnel(config, settings, users=self.users, leases=leases, own_addresses=(POOL4.ip, POOL6.ip))

    def add_client(
        self,
        user: str = "alice",
        *,
        remote: Address = SERVER4,
        up: Conditions | None = None,
        down: Conditions | None = None,
        token: str | None = None,
        fingerprint: str | None = None,
        settings: dict[str, Any] | None = None,
        has_tun: bool = True,
        **config: Any,
    ) -> SimHost:
        """Add a host that begins to connect at once. has_tun: a kernel behind it answers pings."""
        number, self._next_host = self._next_host, self._next_host + 1
        addresses: tuple[Address, ...] = (
            (f"198.51.100.{number}", 40000 + number),
            (f"2001:db8:1::{number:x}", 40000 + number, 0, 0),
        )
        make = partial(
            self.make_client,
            user,
            remote=remote,
            token=token,
            fingerprint=fingerprint,
            settings=settings,
            **config,
        )
        up, down = up or Conditions(delay=LAN_DELAY), down or Conditions(delay=LAN_DELAY)
        host = self.network.host(f"{user}#{number}", make(), *addresses, up=up, down=down)
        self._again[host] = make
        if has_tun:
            host.kernel = answer_ping
        return host

    def make_client(
        self,
        user: str = "alice",
        *,
        remote: Address = SERVER4,
        token: str | None = None,
        fingerprint: str | None = None,
        settings: dict[str, Any] | None = None,
        **config: Any,
    ) -> ClientTunnel:
        """Return one attempt of a client, to be put on a host."""
        known = certificate_fingerprint(self.identity.certificate_pem)
        client = ClientConfig(
            server="vpn.example.net",
            server_name=SERVER_NAME,
            token=token or token_of(user),
            fingerprint=fingerprint or known,
            **config,
        )
        connection = ConnectionSettings(
            **{
                "random_bytes": self._random.randbytes,
                "max_udp_payload": self.udp_payload,
                "server_name": SERVER_NAME,
                "fingerprint": client.fingerprint,
                **(settings or {}),
            }
        )
        return ClientTunnel(client, connection, remote, self.now, check_identifier=self._random.getrandbits(16))

    def wait_up(self, *hosts: SimHost, timeout: float = 10.0) -> None:
        """Let time pass until the hosts' tunnels are up.

        Where loss was so bad that an attempt got no answer, another one is made, as by qtunnel.aio.client.
        """

        def are_up() -> bool:
            for host in hosts:
                closed = events_of(host, Closed)
                if client_of(host).state is ClientState.CLOSED and closed[-1].reason is CloseReason.NO_ANSWER:
                    host.replace(self._again[host]())
            return all(client_of(host).state is ClientState.UP for host in hosts)

        self.network.run_until(are_up, timeout=timeout)

    def wait_closed(self, host: SimHost, timeout: float = 60.0) -> Closed:
        """Let time pass until the host's tunnel has ended; return how."""
        self.network.run_until(lambda: events_of(host, Closed), timeout=timeout)
        closed = events_of(host, Closed)[-1]
        assert closed.text[0].islower(), closed.text  # it is written after "no tunnel: " and the like
        return closed


def client_of(host: SimHost) -> ClientTunnel:
    assert isinstance(host.machine, ClientTunnel)
    return host.machine


def server_of(world: World) -> ServerTunnel:
    assert isinstance(world.server.machine, ServerTunnel)
    return world.server.machine


def events_of(host: SimHost, kind: type[TunnelEvent]) -> list[Any]:
    """Return the events of one kind a host has reported."""
    return [event for _, event in host.events if isinstance(event, kind)]


def address4(host: SimHost) -> IPv4Address:
    """Return a client's inner IPv4 address."""
    return next(each.ip for each in client_of(host).addresses if isinstance(each.ip, IPv4Address))


def address6(host: SimHost) -> IPv6Address:
    """Return a client's inner IPv6 address."""
    return next(each.ip for each in client_of(host).addresses if isinstance(each.ip, IPv6Address))
