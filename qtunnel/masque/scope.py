"""What a tunnel is limited to: the target and ipproto of its request (RFC 9484 §4.6).

    target  = IPv6address ["/" 1*3DIGIT] / IPv4address ["/" 1*2DIGIT] / reg-name / "*"
    ipproto = 1*3DIGIT / "*"

The grammar is that of the values after percent-decoding, where the RFC's "%2F" has become a slash.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

from qtunnel.config import IPAddress, IPNetwork
from qtunnel.errors import QTunnelError
from qtunnel.masque.uri_template import WILDCARD

__all__ = ["EXTENSION_HEADERS", "InvalidScopeError", "Scope", "parse_scope"]

EXTENSION_HEADERS: Final = frozenset((0, 43, 44, 60, 135, 139, 140))
"""IPv6 extension headers: packets are matched by what follows them, so no packet could be in such a scope.

Refusing to scope to them is allowed (RFC 9484 §4.8). Authentication Header and ESP are not among them: as IPv4
protocols they are useful scopes.
"""

MAX_NAME_LENGTH: Final = 253
LABEL: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
ADDRESS_WITH_LENGTH: Final = re.compile(r"([0-9A-Fa-f:.]+)(?:/([0-9]{1,3}))?")


class InvalidScopeError(QTunnelError):
    """A target or ipproto that RFC 9484 §4.6 does not allow. field is "target" or "ipproto"."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(f"{field} {message}")
        self.message = message
        self.field = field


@dataclass(frozen=True, slots=True)
class Scope:
    """What the client wants to reach: a network, a host name, or (both None) anything.

    protocol: the one IP protocol it will use besides ICMP; None for any.
    """

    network: IPNetwork | None = None
    name: str | None = None
    protocol: int | None = None


def parse_scope(target: str, ipproto: str) -> Scope:
    """Return the scope that two variables, already percent-decoded, describe.

    Raises:
        InvalidScopeError: one of them breaks RFC 9484 §4.6, or ipproto is an IPv6 extension header.
    """
    protocol = _parse_protocol(ipproto)
    if target == WILDCARD:
        return Scope(protocol=protocol)
    if ":" in target or "/" in target or _is_numeric(target):
        return Scope(network=_parse_network(target), protocol=protocol)
    _check_name(target)
    return Scope(name=target, protocol=protocol)


def _parse_protocol(text: str) -> int | None:
    if text == WILDCARD:
        return None
    if re.fullmatch("[0-9]{1,3}", text) is None or int(text) > 255:
        raise InvalidScopeError(f'{text!r} is neither 0 to 255 nor "*"', field="ipproto")
    protocol = int(text)
    if protocol in EXTENSION_HEADERS:
        raise InvalidScopeError(
            f"{protocol} is an IPv6 extension header, no protocol to scope to", field="ipproto"
        )
    return protocol


def _is_numeric(target: str) -> bool:
    """Say whether target must be an IPv4 address: no top-level domain is a number, a mistyped address is."""
    return target.rstrip(".").rpartition(".")[2].isdecimal()


def _parse_network(text: str) -> IPNetwork:
    form = ADDRESS_WITH_LENGTH.fullmatch(text)
    if form is None:
        raise InvalidScopeError(f"{text!r} is no IP prefix", field="target")
    kind: type[IPv4Address | IPv6Address] = IPv6Address if ":" in text else IPv4Address
    try:
        address: IPAddress = kind(form[1])
    except ValueError as error:
        raise InvalidScopeError(f"{text!r} holds no IP address", field="target") from error
    length = address.max_prefixlen if form[2] is None else int(form[2])
    if length > address.max_prefixlen or (address.version == 4 and len(form[2] or "") > 2):
        raise InvalidScopeError(f"{text!r} has a prefix length above {address.max_prefixlen}", field="target")
    try:
        if address.version == 4:
            return IPv4Network((int(address), length))
        return IPv6Network((int(address), length))
    except ValueError as error:
        raise InvalidScopeError(f"{text!r} has bits set below its prefix length", field="target") from error


def _check_name(name: str) -> None:
    """Check a host name by what DNS can resolve, which is narrower than the reg-name of RFC 3986 §3.2.2."""
    labels = name.removesuffix(".").split(".")
    if len(name) > MAX_NAME_LENGTH or not all(LABEL.fullmatch(label) for label in labels):
        raise InvalidScopeError(f"{name[:80]!r} is neither an IP prefix nor a host name", field="target")
