"""Opens and configures UDP sockets: everything about them that is decided once.

One socket per family: AF_INET for IPv4, AF_INET6 that never serves IPv4. On a dual-stack socket the IPv6 option
for path MTU discovery says nothing about IPv4-mapped peers, whose packets then leave without DF.
"""

from __future__ import annotations

import errno
import logging
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Final

from qtunnel.errors import SystemSetupError
from qtunnel.linux import cmsg

if TYPE_CHECKING:
    from qtunnel.burst import Address

__all__ = ["OpenedSocket", "open_udp_socket"]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class OpenedSocket:
    """A configured socket and what could be had.

    gso, gro: the kernel has the feature and it was asked for. receive_buffer, send_buffer: bytes of payload and
    overhead the kernel really gives (half of what getsockopt says, as socket(7) explains).
    receive_buffer_wanted: what was asked for, None if the kernel's own was wanted. gso_refused, gro_refused: the
    kernel said no.
    """

    socket: socket.socket
    gso: bool
    gro: bool
    receive_buffer: int
    send_buffer: int
    receive_buffer_wanted: int | None = None
    gso_refused: bool = False
    gro_refused: bool = False


def open_udp_socket(
    local: Address,
    *,
    interface: str | None,
    gso: bool,
    gro: bool,
    receive_buffer: int | None,
    send_buffer: int,
    mark: int | None,
) -> OpenedSocket:
    """Open, configure and bind a non-blocking socket; local's host is a numeric address of the family wanted.

    receive_buffer: None leaves the kernel's default.

    Raises:
        SystemSetupError: the address, port or interface cannot be had; says what to type.
    """
    host, address = _numeric(local)
    family = socket.AF_INET if isinstance(host, IPv4Address) else socket.AF_INET6
    try:
        sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    except OSError as error:
        raise SystemSetupError(f"cannot open a UDP socket for {host} ({error.strerror})") from error
    try:
        _set_family_options(sock, family, is_wildcard=host.is_unspecified)
        if interface is not None:
            _bind_to_device(sock, interface)
        if mark is not None:
            _set_mark(sock, mark)
        has_gso = gso and _is_option_taken(sock, cmsg.UDP_SEGMENT, 0, "UDP_SEGMENT")
        has_gro = gro and _is_option_taken(sock, cmsg.UDP_GRO, 1, "UDP_GRO")
        opened = OpenedSocket(
            socket=sock,
            gso=has_gso,
            gro=has_gro,
            receive_buffer=_set_buffer(sock, receive_buffer, _RECEIVE),
            send_buffer=_set_buffer(sock, send_buffer, _SEND),
            receive_buffer_wanted=receive_buffer,
            gso_refused=gso and not has_gso,
            gro_refused=gro and not has_gro,
        )
        _bind(sock, address)
    except BaseException:
        sock.close()
        raise
    return opened


def _numeric(local: Address) -> tuple[IPv4Address | IPv6Address, Address]:
    """Return the host and the address to bind. Names are refused: they could mean either family."""
    try:
        host = ip_address(local[0])
    except ValueError as error:
        raise SystemSetupError(f"{local[0]!r} is not an IP address to bind a UDP socket to") from error
    if isinstance(host, IPv6Address) and host.ipv4_mapped is not None:
        raise SystemSetupError(
            f"{host} is an IPv4-mapped address, which no IPv6 socket of ours serves",
            remedy=f"Use {host.ipv4_mapped} instead",
        )
    if isinstance(host, IPv6Address) and host.scope_id is not None and len(local) == 2:
        try:
            index = socket.if_nametoindex(host.scope_id)
        except OSError as error:
            raise SystemSetupError(
                f"there is no interface {host.scope_id} (of the address {host})", remedy="See: ip link"
            ) from error
        return host, (str(host).partition("%")[0], local[1], 0, index)
    return host, local


def _set_family_options(sock: socket.socket, family: socket.AddressFamily, *, is_wildcard: bool) -> None:
    """Set DF and its error queue, ECN, and the local address where more than one is possible."""
    sock.setsockopt(socket.SOL_SOCKET, cmsg.SO_RXQ_OVFL, 1)
    if family == socket.AF_INET:
        level = socket.IPPROTO_IP
        sock.setsockopt(level, cmsg.IP_MTU_DISCOVER, cmsg.PMTUDISC_PROBE)
        sock.setsockopt(level, cmsg.IP_RECVERR, 1)
        sock.setsockopt(level, cmsg.IP_RECVTOS, 1)
        if is_wildcard:
            sock.setsockopt(level, cmsg.IP_PKTINFO, 1)
        return
    level = socket.IPPROTO_IPV6
    sock.setsockopt(level, socket.IPV6_V6ONLY, 1)
    sock.setsockopt(level, cmsg.IPV6_MTU_DISCOVER, cmsg.PMTUDISC_PROBE)
    sock.setsockopt(level, cmsg.IPV6_RECVERR, 1)
    sock.setsockopt(level, cmsg.IPV6_RECVTCLASS, 1)
    if is_wildcard:
        sock.setsockopt(level, cmsg.IPV6_RECVPKTINFO, 1)


def _bind_to_device(sock: socket.socket, interface: str) -> None:
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
    except OSError as error:
        if error.errno == errno.ENODEV:
            raise SystemSetupError(f"there is no interface {interface}", remedy="See: ip link") from error
        raise SystemSetupError(
            f"cannot bind a UDP socket to the interface {interface} ({error.strerror})",
            remedy="Run as root or with CAP_NET_RAW",
        ) from error


def _set_mark(sock: socket.socket, mark: int) -> None:
    try:
        sock.setsockopt(socket.SOL_SOCKET, cmsg.SO_MARK, mark)
    except OSError as error:
        raise SystemSetupError(
            f"cannot set the packet mark {mark:#x} ({error.strerror})",
            remedy="Run as root or with CAP_NET_ADMIN",
        ) from error


def _is_option_taken(sock: socket.socket, option: int, value: int, name: str) -> bool:
    """Return whether the kernel knows a UDP option. A kernel without UDP_SEGMENT would send the batch as it is."""
    try:
        sock.setsockopt(cmsg.SOL_UDP, option, value)
    except OSError as error:
        logger.info("the kernel has no %s (%s): one datagram at a time", name, error.strerror)
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Buffer:
    name: str
    forced: int
    plain: int
    sysctl: str


_RECEIVE: Final = _Buffer("receive", cmsg.SO_RCVBUFFORCE, socket.SO_RCVBUF, "net.core.rmem_max")
_SEND: Final = _Buffer("send", cmsg.SO_SNDBUFFORCE, socket.SO_SNDBUF, "net.core.wmem_max")


def _set_buffer(sock: socket.socket, size: int | None, buffer: _Buffer) -> int:
    """Ask for size bytes, beyond the host's limit where we may; return what we got. Warns when that is less."""
    if size is None:
        return sock.getsockopt(socket.SOL_SOCKET, buffer.plain) // 2
    try:
        sock.setsockopt(socket.SOL_SOCKET, buffer.forced, size)
    except OSError:
        sock.setsockopt(socket.SOL_SOCKET, buffer.plain, size)
    got = sock.getsockopt(socket.SOL_SOCKET, buffer.plain) // 2
    if got < size:
        logger.warning(
            "the UDP %s buffer is %d bytes instead of %d, so bursts may be lost. Type: sysctl -w %s=%d",
            buffer.name,
            got,
            size,
            buffer.sysctl,
            size,
        )
    return got


def _bind(sock: socket.socket, address: Address) -> None:
    try:
        sock.bind(address)
    except (OSError, OverflowError) as error:
        raise _bind_error(error, address) from error


def _bind_error(error: OSError | OverflowError, address: Address) -> SystemSetupError:
    host, port = address[0], address[1]
    if isinstance(error, OverflowError):
        return SystemSetupError(f"{port} is not a UDP port")
    if error.errno == errno.EADDRINUSE:
        return SystemSetupError(
            f"UDP port {port} is taken on {host}", remedy=f"See who has it: ss -ulpn 'sport = :{port}'"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return SystemSetupError(f"{host} is no address of this host", remedy="See: ip address")
    if error.errno in (errno.EACCES, errno.EPERM):
        return SystemSetupError(
            f"may not bind UDP port {port} ({error.strerror})",
            remedy="Run as root or with CAP_NET_BIND_SERVICE, or choose a port from 1024 upwards",
        )
    return SystemSetupError(f"cannot bind a UDP socket to {host} port {port} ({error.strerror})")
