"""IP over HTTP/3: a MASQUE CONNECT-IP tunnel (RFC 9484), as a command and as a library.

The public names are the ones in __all__; everything else may change. They are loaded at first use, so that one
layer, such as qtunnel.pmtud, can be used alone without the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from qtunnel.aio.measure_mtu import MtuMeasurement, MtuStep, measure_path_mtu
    from qtunnel.api import Leases, TunnelClient, TunnelServer, connect, serve
    from qtunnel.config import (
        ClientConfig,
        HostConfig,
        PeerQuirks,
        QuicConfig,
        RouteMode,
        ServerConfig,
        User,
        token_digest,
    )
    from qtunnel.drops import DropReason
    from qtunnel.errors import (
        AuthenticationError,
        ConfigError,
        ConnectionFailedError,
        LocalProtocolError,
        NetworkOverlapError,
        PeerProtocolError,
        QTunnelError,
        ServerNotVerifiedError,
        SystemSetupError,
    )
    from qtunnel.state.identity import ServerIdentity, make_identity
    from qtunnel.state.join_link import JoinLink, parse_join_link
    from qtunnel.tunnel.events import (
        AddressesChanged,
        CloseReason,
        Connected,
        Connecting,
        Disconnected,
        InnerMtuChanged,
        Ipv6Refused,
        PrefixesChanged,
        RequestRefused,
        RoutesChanged,
        SessionClosed,
        SessionOpened,
        TunnelEvent,
    )

__version__: Final = "0.1.0"

_HOMES: Final = {
    "aio.measure_mtu": ("MtuMeasurement", "MtuStep", "measure_path_mtu"),
    "api": ("Leases", "TunnelClient", "TunnelServer", "connect", "serve"),
    "config": (
        "ClientConfig",
        "HostConfig",
        "PeerQuirks",
        "QuicConfig",
        "RouteMode",
        "ServerConfig",
        "User",
        "token_digest",
    ),
    "drops": ("DropReason",),
    "errors": (
        "AuthenticationError",
        "ConfigError",
        "ConnectionFailedError",
        "LocalProtocolError",
        "NetworkOverlapError",
        "PeerProtocolError",
        "QTunnelError",
        "ServerNotVerifiedError",
        "SystemSetupError",
    ),
    "state.identity": ("ServerIdentity", "make_identity"),
    "state.join_link": ("JoinLink", "parse_join_link"),
    "tunnel.events": (
        "AddressesChanged",
        "CloseReason",
        "Connected",
        "Connecting",
        "Disconnected",
        "InnerMtuChanged",
        "Ipv6Refused",
        "PrefixesChanged",
        "RequestRefused",
        "RoutesChanged",
        "SessionClosed",
        "SessionOpened",
        "TunnelEvent",
    ),
}
_HOME: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Load a public name at its first use (PEP 562)."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted(__all__)


__all__ = [
    "AddressesChanged",
    "AuthenticationError",
    "ClientConfig",
    "CloseReason",
    "ConfigError",
    "Connected",
    "Connecting",
    "ConnectionFailedError",
    "Disconnected",
    "DropReason",
    "HostConfig",
    "InnerMtuChanged",
    "Ipv6Refused",
    "JoinLink",
    "Leases",
    "LocalProtocolError",
    "MtuMeasurement",
    "MtuStep",
    "NetworkOverlapError",
    "PeerProtocolError",
    "PeerQuirks",
    "PrefixesChanged",
    "QTunnelError",
    "QuicConfig",
    "RequestRefused",
    "RouteMode",
    "RoutesChanged",
    "ServerConfig",
    "ServerIdentity",
    "ServerNotVerifiedError",
    "SessionClosed",
    "SessionOpened",
    "SystemSetupError",
    "TunnelClient",
    "TunnelEvent",
    "TunnelServer",
    "User",
    "__version__",
    "connect",
    "make_identity",
    "measure_path_mtu",
    "parse_join_link",
    "serve",
    "token_digest",
]
