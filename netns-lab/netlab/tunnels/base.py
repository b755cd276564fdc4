"""What a tunnel must let the lab do with it; see netns-lab/README.md, "Another tunnel"."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import ClassVar

import bootstrap
from netlab.addresses import IPAddress
from netlab.daemon import Daemon
from netlab.errors import LabError
from netlab.host import Host
from netlab.topology import Site


class Feature(Enum):
    """What some tunnels lack; an experiment that needs it then says "not applicable"."""

    DEVICE = "a device of its own, so that there is something to measure"
    PROCESS = "processes of its own"
    IPV6_OUTSIDE = "IPv6 outside"
    IPV6_INSIDE = "IPv6 inside"
    NAMES = "servers given by name"
    MANY_CLIENTS = "more than one client on one server"
    ABLATIONS = "switches that turn one cure off"


class NotApplicable(LabError):
    """A tunnel lacks what the experiment is about; the text says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """A client's end of a tunnel that is up: its device and addresses. Without a tunnel: those of its link."""

    host: Host
    device: str
    ipv4: IPAddress
    ipv6: IPAddress | None
    daemon: Daemon | None

    def address(self, version: int) -> IPAddress:
        """Return the inner address of a version."""
        found = self.ipv4 if version == 4 else self.ipv6
        if found is None:
            raise NotApplicable(f"it has no IPv{version} inside")
        return found

    @property
    def mtu(self) -> int:
        """The device's MTU: the largest inner packet the client's kernel sends."""
        return self.host.device_mtu(self.device)


@dataclass(slots=True, kw_only=True)
class Options:
    """How a tunnel is to be run. outer: IP version outside. ablation: cures to switch off, such as rcvbuf=default.

    path_mtu: what the user states about the link; None leaves it to the tunnel. by_name: clients know the server
    by a host name of both families. mixed: some clients will come over the other IP version.
    """

    outer: int = 4
    path_mtu: int | None = None
    by_name: bool = False
    mixed: bool = False
    ablation: Mapping[str, str] = field(default_factory=dict)


class Tunnel(ABC):
    """One server and its clients on a site. The network ends their processes."""

    name: ClassVar[str]
    about: ClassVar[str]
    lacks: ClassVar[frozenset[Feature]] = frozenset()
    packages: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Commands it needs, and the Debian packages that have them."""

    def __init__(self, site: Site, options: Options) -> None:
        self.site = site
        self.options = options
        self.server: Daemon | None = None
        self.clients: list[Inner] = []

    @classmethod
    def install(cls) -> None:
        """Install what is missing; LabError with what to do if that cannot be done."""
        try:
            bootstrap.install_packages(cls.packages)
        except bootstrap.SetupError as error:
            raise LabError(str(error)) from error

    @abstractmethod
    def start_server(self) -> None:
        """Start the server and wait until it takes clients."""

    @abstractmethod
    def start_client(self, host: Host, *, outer: int | None = None) -> Inner:
        """Start a client on a host and wait until it is up (NotReadyError if it does not come up).

        outer: IP version outside, if not that of the options; with several clients some may differ.
        """

    @abstractmethod
    def server_inner(self, version: int) -> IPAddress:
        """Return the server's own address inside."""

    def handshake_rate(self, count: int) -> float:
        """Return how many clients a second the server takes on, from count connections one after another."""
        raise NotApplicable("the lab cannot make handshakes alone with it")
