"""The error queue of a UDP socket (IP_RECVERR, IPV6_RECVERR): ICMP errors about what it sent, as data.

The kernel has matched the quoted packet to the socket by protocol, local port and, where the socket is bound to
one, local address. That is little: anyone who guesses the port can forge one. So an error is a hint, and whoever
acts on it compares quoted (the beginning of the datagram that caused it) with what was sent (RFC 8899 §4.6.1).
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from qtunnel.linux.cmsg import IP_RECVERR, IPV6_RECVERR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qtunnel.burst import Address
    from qtunnel.linux.cmsg import Ancillary

__all__ = ["IcmpError", "parse_error"]

_EXTENDED_ERROR = struct.Struct("=IBBBxII")  # errno, origin, type, code, padding, info, data: linux/errqueue.h
_ORIGIN_LOCAL: Final = 1
_ORIGIN_ICMP: Final = 2
_ORIGIN_ICMP6: Final = 3

_UNREACHABLE: Final = 3
_FRAGMENTATION_NEEDED: Final = 4
_PACKET_TOO_BIG6: Final = 2

_MIN_MTU4: Final = 68  # RFC 791 §3.2
_MIN_MTU6: Final = 1280  # RFC 8201 §4: a smaller value is not to be believed
_MAX_MTU: Final = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class IcmpError:
    """One error about a datagram sent earlier.

    remote: where that datagram went. mtu: the IP packet size a "too big" message or the local link gave, None for
    other errors and for a value nobody may send. errno: what the kernel makes of it. type, code: the ICMP (IPv4)
    or ICMPv6 message's, both 0 for a local error. quoted: the beginning of the UDP payload it was about, perhaps
    empty. offender: the address the message came from. is_local: this host said it, nothing came from the network.
    """

    remote: Address
    mtu: int | None
    errno: int
    type: int
    code: int
    quoted: bytes
    offender: str | None
    is_local: bool


def parse_error(items: Sequence[Ancillary], remote: Address | None, quoted: bytes) -> IcmpError | None:
    """Return the error one message of the error queue holds, or None where it holds none we understand."""
    if remote is None:
        return None
    for level, kind, data in items:
        is_ipv6 = level == socket.IPPROTO_IPV6 and kind == IPV6_RECVERR
        if not is_ipv6 and not (level == socket.IPPROTO_IP and kind == IP_RECVERR):
            continue
        if len(data) < _EXTENDED_ERROR.size:
            return None
        errno, origin, icmp_type, code, info, _ = _EXTENDED_ERROR.unpack_from(data)
        if origin not in (_ORIGIN_LOCAL, _ORIGIN_ICMP6 if is_ipv6 else _ORIGIN_ICMP):
            return None
        is_local = origin == _ORIGIN_LOCAL
        return IcmpError(
            remote=remote,
            mtu=_mtu(info, icmp_type, code, is_ipv6=is_ipv6, is_local=is_local),
            errno=errno,
            type=icmp_type,
            code=code,
            quoted=quoted,
            offender=None if is_local else _offender(data[_EXTENDED_ERROR.size :]),
            is_local=is_local,
        )
    return None


def _mtu(info: int, icmp_type: int, code: int, *, is_ipv6: bool, is_local: bool) -> int | None:
    """Return the size that a too-big message, or the local link, gave; None where it cannot be one."""
    if not is_local:
        if is_ipv6 and icmp_type != _PACKET_TOO_BIG6:
            return None
        if not is_ipv6 and (icmp_type, code) != (_UNREACHABLE, _FRAGMENTATION_NEEDED):
            return None
    return info if (_MIN_MTU6 if is_ipv6 else _MIN_MTU4) <= info <= _MAX_MTU else None


def _offender(data: bytes) -> str | None:
    """Return the host of the sockaddr the kernel put behind the error; its family is unset when it knows none."""
    if len(data) >= 8 and data[:2] == struct.pack("=H", socket.AF_INET):
        return socket.inet_ntop(socket.AF_INET, data[4:8])
    if len(data) >= 24 and data[:2] == struct.pack("=H", socket.AF_INET6):
        return socket.inet_ntop(socket.AF_INET6, data[8:24])
    return None
