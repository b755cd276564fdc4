"""The settings of `serve` and `connect`: each flag, and the key a TOML file has for the same thing.

A test holds these tables against the dataclasses of qtunnel.config: every field has its flag, but for the token,
which is never said on a command line.
"""

from __future__ import annotations

from typing import Final

import click

from qtunnel.cli.flags import Flag
from qtunnel.cli.logs import LogLevel
from qtunnel.config import CONGESTION_CONTROLS, PathMtuSearch, PeerQuirks, RouteMode

__all__ = ["CONNECT_FLAGS", "SERVE_FLAGS"]


_CONTROLS: Final = click.Choice(CONGESTION_CONTROLS)
_QUIRKS: Final = click.Choice([quirks.value for quirks in PeerQuirks])
_SEARCHES: Final = click.Choice([search.value for search in PathMtuSearch])
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
        "IP packet size the path carries; default: found by probing, and followed.",
        _QUIC,
        kind=int,
        metavar="BYTES",
    ),
    Flag(
        "quic.min_path_mtu",
        "--min-path-mtu",
        "IP packet size the path carries for sure; default: what QUIC needs.",
        _QUIC,
        kind=int,
        metavar="BYTES",
    ),
    Flag(
        "quic.max_path_mtu",
        "--max-path-mtu",
        "Largest IP packet size to try; default: the outgoing interface's MTU.",
        _QUIC,
        kind=int,
        metavar="BYTES",
    ),
    Flag(
        "quic.path_mtu_search",
        "--path-mtu-search",
        "Several probes a round trip (default), or one, as RFC 8899 has it.",
        _QUIC,
        kind=_SEARCHES,
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
        "How much may be on its way; default cubic. none: all at once, for links that are all yours.",
        _QUIC,
        kind=_CONTROLS,
    ),
    Flag(
        "quic.gso",
        "--gso/--no-gso",
        "Send many datagrams at once and let the kernel cut them apart (UDP_SEGMENT; default).",
        _QUIC,
        kind=bool,
    ),
    Flag(
        "quic.gro",
        "--gro/--no-gro",
        "Take many datagrams at once that the kernel has joined (UDP_GRO; default).",
        _QUIC,
        kind=bool,
    ),
    Flag(
        "quic.receive_buffer",
        "--receive-buffer",
        "Receive buffer of each UDP socket; default 4 MiB.",
        _QUIC,
        kind=int,
        metavar="BYTES",
    ),
    Flag(
        "quic.send_buffer",
        "--send-buffer",
        "Send buffer of each UDP socket; default 4 MiB.",
        _QUIC,
        kind=int,
        metavar="BYTES",
    ),
    Flag(
        "peer_quirks",
        "--quirks",
        "Tolerate the known breaches of the standards by this peer; default none.",
        _QUIC,
        kind=_QUIRKS,
    ),
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
    Flag(
        "log_level",
        "--log-level",
        "What to log, besides life events; default warning, or info with --log-file.",
        _LOG,
        kind=_LEVELS,
    ),
    Flag(
        "log_file", "--log-file", "Log to a file, life events too; default: standard error.", _LOG, metavar="FILE"
    ),
    Flag(
        "quic.qlog_dir",
        "--qlog-dir",
        "Write a qlog of each connection into this directory, for qvis.",
        _LOG,
        metavar="DIR",
    ),
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
    Flag("first_user", "--first-user", "Name of the user made at first start; default user1.", metavar="NAME"),
    Flag(
        "listen",
        "--listen",
        "Address to listen on; default 0.0.0.0 and ::; repeatable.",
        is_list=True,
        metavar="ADDRESS",
    ),
    Flag("port", "--port", "UDP port of the server; default 443.", kind=int, metavar="PORT"),
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
    Flag(
        "pool6",
        "--pool6",
        "Own inner IPv6 address and the pool around it, or `none`; default: chosen once, at random.",
        metavar="ADDR/LEN",
    ),
    Flag(
        "server_name",
        "--server-name",
        "Name in the certificate, which clients send as SNI; default: made at first start, or the certificate's.",
        metavar="NAME",
    ),
    Flag(
        "certificate",
        "--certificate",
        "Your own certificate chain (PEM) instead of the one made at first start.",
        metavar="FILE",
    ),
    Flag("private_key", "--private-key", "The key of that certificate (PEM).", metavar="FILE"),
    Flag("name", "--name", "Name in `qtunnel status`; default server.", metavar="NAME"),
    Flag(
        "path_prefix",
        "--path-prefix",
        "Path where requests for a tunnel are taken; default /.well-known/masque/ip.",
        _QUIC,
        metavar="PATH",
    ),
    Flag(
        "max_sessions",
        "--max-sessions",
        "Clients connected at a time; default 1024.",
        _LIMITS,
        kind=int,
        metavar="N",
    ),
    Flag(
        "max_handshakes",
        "--max-handshakes",
        "Handshakes under way at a time; default 256.",
        _LIMITS,
        kind=int,
        metavar="N",
    ),
    Flag(
        "retry_threshold",
        "--retry-threshold",
        "Handshakes above which new clients must prove their address; default 32.",
        _LIMITS,
        kind=int,
        metavar="N",
    ),
    Flag(
        "icmp_rate",
        "--icmp-rate",
        "ICMP errors sent per second, at most; default 100.",
        _LIMITS,
        kind=float,
        metavar="PER_SECOND",
    ),
    Flag(
        "icmp_burst",
        "--icmp-burst",
        "ICMP errors sent at once, at most; default 50.",
        _LIMITS,
        kind=int,
        metavar="N",
    ),
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
    Flag(
        "route_mode",
        "--route-mode",
        "Whether to route what the server offers (advertised, default) or only --route (none).",
        kind=_ROUTE_MODES,
    ),
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
    Flag("want_ipv4", "--ipv4/--no-ipv4", "Ask for an IPv4 address inside the tunnel (default).", kind=bool),
    Flag("want_ipv6", "--ipv6/--no-ipv6", "Ask for an IPv6 address inside the tunnel (default).", kind=bool),
    Flag("name", "--name", "Name in `qtunnel status`; default the profile's.", metavar="NAME"),
    Flag(
        "server",
        "--server",
        "Host name or address of the server, instead of the profile's.",
        _SERVER,
        metavar="HOST",
    ),
    Flag("port", "--port", "UDP port of the server; default 443.", _SERVER, kind=int, metavar="PORT"),
    Flag(
        "server_name",
        "--server-name",
        "Name in the server's certificate, sent as SNI, instead of the profile's.",
        _SERVER,
        metavar="NAME",
    ),
    Flag(
        "fingerprint",
        "--fingerprint",
        "SHA-256 of the server's certificate; without one the CAs decide.",
        _SERVER,
        metavar="HEX",
    ),
    Flag(
        "ca_file",
        "--ca-file",
        "Certificate authorities (PEM) to trust; default: the system's.",
        _SERVER,
        metavar="FILE",
    ),
    Flag(
        "uri_template",
        "--uri-template",
        "URI template of the server (RFC 9484); default https://HOST:PORT/.well-known/masque/ip/{target}/{ipproto}/.",
        _SERVER,
        metavar="URI",
    ),
    Flag(
        "target",
        "--target",
        "Ask for a tunnel to this address, network or name only; default *: anything.",
        _SERVER,
        metavar="TARGET",
    ),
    Flag(
        "ipproto", "--ipproto", "Ask for a tunnel for this IP protocol only; default *: all.", _SERVER, metavar="N"
    ),
    Flag(
        "handshake_timeout",
        "--handshake-timeout",
        "Longest wait for an answer from one address; default 5.",
        _QUIC,
        kind=float,
        metavar="SECONDS",
    ),
    Flag(
        "reconnect_min",
        "--reconnect-min",
        "Wait before the first new attempt; default 0.5.",
        _QUIC,
        kind=float,
        metavar="SECONDS",
    ),
    Flag(
        "reconnect_max",
        "--reconnect-max",
        "Longest wait between attempts; default 30.",
        _QUIC,
        kind=float,
        metavar="SECONDS",
    ),
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
        "Priority of the first of three routing rules; default 5180.",
        _HOST,
        kind=int,
        metavar="NUMBER",
    ),
    *_SHARED_FLAGS,
)
