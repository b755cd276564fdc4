"""What a server decides at its first start and keeps: its name, its pools, and what links say."""

from __future__ import annotations

import random
import re
import socket
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Final

from qtunnel.cli.load import ServeOptions, Settings
from qtunnel.config import IPNetwork, ServerConfig
from qtunnel.errors import ConfigError
from qtunnel.state.identity import (
    ServerIdentity,
    certificate_fingerprint,
    certificate_names,
    generate_server_name,
    kept_server_name,
    load_or_create_identity,
    operator_identity,
)
from qtunnel.state.join_link import is_host
from qtunnel.state.pools import choose_pool4, choose_pool6
from qtunnel.state.server_record import ServerRecord, load_server_record

__all__ = ["fill_in", "identity_of", "parse_public_name", "record_of", "source_address"]

_REMEMBERED: Final = "server.json"
_HOST_PORT: Final = re.compile(r"(?:\[(?P<bracketed>[^\[\]]+)\]|(?P<plain>[^:\[\]]+))(?::(?P<port>[0-9]{1,5}))?\Z")
"""What it does not match is left to be an IPv6 address without brackets, or nothing."""


def fill_in(settings: Settings, state: Path, host_networks: Callable[[], Iterable[IPNetwork]]) -> None:
    """Add the server's name and pools to the settings, where they were not said: as kept, or newly chosen.

    host_networks: called at a first start only; the networks this host knows, which the pools must not overlap.

    Raises:
        StateError: what is kept is damaged. NetworkOverlapError: no pool is free.
    """
    known = load_server_record(state) if state.is_dir() else None
    if not settings.has("server_name"):
        name = _certificate_name(settings) or kept_server_name(state) or generate_server_name()
        settings.add({"server_name": name}, _REMEMBERED)
    if known is not None:
        for key, pool in (("pool4", known.pool4), ("pool6", known.pool6)):
            if not settings.has(key) and pool is not None:
                settings.add({key: str(pool)}, _REMEMBERED)
        return
    if settings.has("pool4") and settings.has("pool6"):
        return
    taken = tuple(host_networks())
    rng = random.SystemRandom()
    if not settings.has("pool4"):
        settings.add({"pool4": str(choose_pool4(taken, rng))}, _REMEMBERED)
    if not settings.has("pool6"):
        settings.add({"pool6": str(choose_pool6(taken, rng))}, _REMEMBERED)


def identity_of(config: ServerConfig, state: Path, now: datetime) -> ServerIdentity:
    """Return the identity the server presents: its own, made at the first start, or the operator's."""
    if config.certificate is not None and config.private_key is not None:
        return operator_identity(
            state,
            certificate=Path(config.certificate),
            private_key=Path(config.private_key),
            server_name=config.server_name,
        )
    return load_or_create_identity(state, server_name=config.server_name, now=now)


def record_of(
    config: ServerConfig, options: ServeOptions, identity: ServerIdentity, known: ServerRecord | None
) -> ServerRecord:
    """Return what to keep. known: what was kept before; its --public-name stays until there is another.

    Raises:
        ConfigError: no public name was said and none can be guessed, or it is not one.
    """
    public_name = options.public_name or (known.public_name if known is not None else None)
    has_own_certificate = config.certificate is None
    if public_name is not None:
        host, port = parse_public_name(public_name, config.port)
    elif not has_own_certificate:
        host, port = config.server_name, config.port
    else:
        guess = next((address for address in config.listen if not _is_unspecified(address)), source_address())
        if guess is None:
            raise ConfigError(
                "this host has no default route, so its address is unknown. Give what clients reach it by: "
                "--public-name HOST[:PORT]",
                field="public_name",
            )
        host, port = guess, config.port
    return ServerRecord(
        server_name=config.server_name,
        pool4=config.pool4,
        pool6=config.pool6,
        public_name=public_name,
        public_host=host,
        public_port=port,
        fingerprint=certificate_fingerprint(identity.certificate_pem) if has_own_certificate else None,
        instance=options.name,
    )


def parse_public_name(text: str, default_port: int) -> tuple[str, int]:
    """Return host and port of HOST, HOST:PORT or [ADDRESS]:PORT.

    Raises:
        ConfigError: it is none of these.
    """
    match = _HOST_PORT.match(text)
    host = text if match is None else match["bracketed"] or match["plain"] or ""
    port = default_port if match is None or match["port"] is None else int(match["port"])
    if not is_host(host) or not 1 <= port <= 65535:
        raise ConfigError(
            f"found {text!r}; allowed: a name or address, and if need be a port, such as vpn.example.net:443 or "
            "[2001:db8::1]:443",
            field="public_name",
        )
    return host.lower(), port


def source_address() -> str | None:
    """Return the address this host would speak to the internet from, None without a default route.

    Connecting a UDP socket asks the routing table and sends nothing.
    """
    for family, remote in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((remote, 443))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return None


def _certificate_name(settings: Settings) -> str | None:
    """Return the first plain name of the operator's certificate; validation reports a file that cannot be read."""
    path = settings.values.get("certificate")
    try:
        names = certificate_names(Path(path).read_bytes()) if isinstance(path, str) else []
    except (OSError, ValueError):
        names = []
    return next((name for name in names if not name.startswith("*")), None)


def _is_unspecified(address: str) -> bool:
    return address in ("0.0.0.0", "::")
