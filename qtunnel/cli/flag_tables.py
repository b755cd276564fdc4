"""The settings of `serve` and `connect`: each flag, and the key a TOML file has for the same thing.

A test holds these tables against the dataclasses of qtunnel.config: every field has its flag, but for the token,
which is never said on a command line.
"""

from __future__ import annotations

from typing import Final

import click

from qtunnel.cli.flags import Flag
from qtunnel.cli.logs import LogLevel
from qtunnel.config import PeerQuirks, RouteMode

__all__ = ["CONNECT_FLAGS", "SERVE_FLAGS"]


_QUIRKS: Final = click.Choice([quirks.value for quirks in PeerQuirks])
_LEVELS: Final = click.Choice([level.value for level in LogLevel])
_ROUTE_MODES: Final = click.Choice([mode.value for mode in RouteMode])
_QUIC: Final = "Transport"
_HOST: Final = "Host"
_LIMITS: Final = "Limits"
_LOG: Final = "Diagnostics"
_SERVER: Final = "Server"

_SHARED_FLAGS: Final = (
    Flag(
        "quic.path_mtu",
        "--path-mtu",
        "IP packet size the path carries; default: the outgoing interface's MTU.",
        _QUIC,
        kind=int,
        metavar="BYTES",
    ),
    Flag(
        "quic.idle_timeout",
        "--idle-timeout",
        "Silence after which a connection is dead; default 30.",
        _QUIC,
        kind=float,
        metavar="SECONDS",
    ),
    Flag(
        "quic.keep_alive",
        "--keep-alive",
        "A PING after this much silence keeps NATs open; default 10.",
        _QUIC,
        kind=float,
        metavar="SECONDS",
    ),
    Flag(
        "quic.congestion_control",
        "--congestion-control",
        "cubic (default), bbr, reno or none.",
        _QUIC,
        metavar="NAME",
    ),
    Flag("quic.gso", "--gso/--no-gso", "Let the kernel cut what is sent.", _QUIC, kind=bool),
    Flag("quic.gro", "--gro/--no-gro", "Let it join what is received.", _QUIC, kind=bool),
    Flag(
        "quic.receive_buffer",
        "--receive-buffer",
        "Of each UDP socket; default 4 MiB.",
        _QUIC,
        kind=int,
        metavar="BYTES",
    ),
    Flag(
        "quic.send_buffer", "--send-buffer", "Of each UDP socket; default 4 MiB.", _QUIC, kind=int, metavar="BYTES"
    ),
    Flag("peer_quirks", "--quirks", "Tolerate the known breaches of this peer.", _QUIC, kind=_QUIRKS),
    Flag(
        "host.tun_name",
        "--tun",
        "Name of the TUN device; default qtun%d, the first free number.",
        _HOST,
        metavar="NAME",
    ),
    Flag(
        "host.tun_offload",
        "--tun-offload/--no-tun-offload",
        "Let the kernel hand over, and take, many packets of a flow at once (default).",
        _HOST,
        kind=bool,
    ),
    Flag(
        "use_tun",
        "--no-tun",
        "No TUN device and no root: a server only between its clients, a client only to test.",
        _HOST,
        kind=bool,
        constant=False,
    ),
    Flag(
        "host.drop_privileges",
        "--drop-privileges/--keep-privileges",
        "Keep only what is still needed once set up (default).",
        _HOST,
        kind=bool,
    ),
    Flag("log_level", "--log-level", "Default: warning, or info with --log-file.", _LOG, kind=_LEVELS),
    Flag("log_file", "--log-file", "Log to a file, life events too.", _LOG, metavar="FILE"),
    Flag("quic.qlog_dir", "--qlog-dir", "Write a qlog per connection.", _LOG, metavar="DIR"),
    Flag(
        "quic.secrets_log_file",
        "--secrets-log",
        "Write TLS secrets: whoever has them can read the traffic.",
        _LOG,
        metavar="FILE",
    ),
)

SERVE_FLAGS: Final = (
    Flag(
        "public_name",
        "--public-name",
        "How clients reach this server; remembered. Default: this host's own address.",
        metavar="HOST[:PORT]",
    ),
    Flag(
        "state_dir",
        "--state-dir",
        "Where identity and users are kept; default QTUNNEL_STATE_DIR or /var/lib/qtunnel.",
        metavar="DIR",
    ),
    Flag("first_user", "--first-user", "Of the user made at first start; user1.", metavar="NAME"),
    Flag("listen", "--listen", "Default 0.0.0.0 and ::; repeatable.", is_list=True, metavar="ADDRESS"),
    Flag("port", "--port", "UDP port; default 443.", kind=int, metavar="PORT"),
    Flag(
        "advertise",
        "--advertise",
        "Network behind the server that clients may reach, or `default` for all; repeatable.",
        is_list=True,
        metavar="NET",
    ),
    Flag(
        "masquerade",
        "--masquerade/--no-masquerade",
        "Hide clients behind this host's address (NAT), IPv6 too.",
        kind=bool,
    ),
    Flag(
        "forward",
        "--forward/--no-forward",
        "Switch the kernel's forwarding on while running; implied by the two above.",
        kind=bool,
    ),
    Flag(
        "client_to_client", "--client-to-client/--no-client-to-client", "Let clients reach each other.", kind=bool
    ),
    Flag(
        "pool4",
        "--pool4",
        "Own inner IPv4 address and the pool around it, or `none`; default: chosen once, at random.",
        metavar="ADDR/LEN",
    ),
    Flag("pool6", "--pool6", "The same for IPv6.", metavar="ADDR/LEN"),
    Flag(
        "server_name",
        "--server-name",
        "TLS name; default: made at first start, or the certificate's.",
        metavar="NAME",
    ),
    Flag(
        "certificate",
        "--certificate",
        "Your own certificate chain (PEM) instead of the one made at first start.",
        metavar="FILE",
    ),
    Flag("private_key", "--private-key", "Its key (PEM).", metavar="FILE"),
    Flag("name", "--name", "For `qtunnel status`; default server.", metavar="NAME"),
    Flag(
        "path_prefix",
        "--path-prefix",
        "Where requests are taken; default /.well-known/masque/ip.",
        _QUIC,
        metavar="PATH",
    ),
    Flag("max_sessions", "--max-sessions", "Clients at a time; default 1024.", _LIMITS, kind=int, metavar="N"),
    Flag(
        "max_handshakes", "--max-handshakes", "Handshakes at a time; default 256.", _LIMITS, kind=int, metavar="N"
    ),
    Flag(
        "retry_threshold",
        "--retry-threshold",
        "Handshakes above which new clients must prove their address; default 32.",
        _LIMITS,
        kind=int,
        metavar="N",
    ),
    Flag("icmp_rate", "--icmp-rate", "ICMP errors sent; default 100.", _LIMITS, kind=float, metavar="PER_SECOND"),
    Flag("icmp_burst", "--icmp-burst", "ICMP errors sent at once; default 50.", _LIMITS, kind=int, metavar="N"),
    *_SHARED_FLAGS,
)

CONNECT_FLAGS: Final = (
    Flag(
        "routes",
        "--route",
        "Send this network into the tunnel too; `default`: all; `none`: not what the server offers; repeatable.",
        is_list=True,
        metavar="NET",
    ),
    Flag("route_mode", "--route-mode", "none is the same as --route none.", kind=_ROUTE_MODES),
    Flag(
        "advertise",
        "--advertise",
        "Network behind this client to offer to the server, which must permit it; repeatable.",
        is_list=True,
        metavar="NET",
    ),
    Flag(
        "masquerade",
        "--masquerade/--no-masquerade",
        "Hide a network behind this client's tunnel address (NAT).",
        kind=bool,
    ),
    Flag("reconnect", "--once", "End when the tunnel ends; no reconnect.", kind=bool, constant=False),
    Flag("want_ipv4", "--ipv4/--no-ipv4", "Ask for IPv4 inside (default).", kind=bool),
    Flag("want_ipv6", "--ipv6/--no-ipv6", "Ask for IPv6 inside (default).", kind=bool),
    Flag("name", "--name", "For `qtunnel status`; default the profile's.", metavar="NAME"),
    Flag("server", "--server", "Instead of the profile's.", _SERVER, metavar="HOST"),
    Flag("port", "--port", "UDP port; default 443.", _SERVER, kind=int, metavar="PORT"),
    Flag("server_name", "--server-name", "TLS name.", _SERVER, metavar="NAME"),
    Flag(
        "fingerprint",
        "--fingerprint",
        "SHA-256 of the server's certificate; without one the CAs decide.",
        _SERVER,
        metavar="HEX",
    ),
    Flag("ca_file", "--ca-file", "CAs (PEM); default: the system's.", _SERVER, metavar="FILE"),
    Flag(
        "uri_template",
        "--uri-template",
        "Default https://HOST:PORT/.well-known/masque/ip/{target}/{ipproto}/.",
        _SERVER,
        metavar="URI",
    ),
    Flag("target", "--target", "Scope of the request; default *.", _SERVER, metavar="TARGET"),
    Flag("ipproto", "--ipproto", "Protocol of the request; default *.", _SERVER, metavar="N"),
    Flag(
        "handshake_timeout",
        "--handshake-timeout",
        "For one attempt at one address; default 5.",
        _QUIC,
        kind=float,
        metavar="SECONDS",
    ),
    Flag(
        "reconnect_min",
        "--reconnect-min",
        "First wait before trying again; default 0.5.",
        _QUIC,
        kind=float,
        metavar="SECONDS",
    ),
    Flag("reconnect_max", "--reconnect-max", "Longest wait; default 30.", _QUIC, kind=float, metavar="SECONDS"),
    Flag(
        "route_table",
        "--table",
        "Routing table for the tunnel's routes; default 51821.",
        _HOST,
        kind=int,
        metavar="NUMBER",
    ),
    Flag(
        "rule_priority",
        "--priority",
        "Of the first of three routing rules; default 5180.",
        _HOST,
        kind=int,
        metavar="NUMBER",
    ),
    *_SHARED_FLAGS,
)
