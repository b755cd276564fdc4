"""The join link: everything a client needs to know about a server, in one line.

    qtunnel://vpn.example.net:443/?name=a1b2.qtunnel.invalid&fp=<64 hex digits>&user=alice#<token>

`name` is sent as SNI and checked against the certificate (left out, it is the host); `fp` is the SHA-256 of the
server's own certificate (left out, the CAs decide). The token is in the fragment, which no URL library ever sends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Any, Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

from qtunnel.config import DEFAULT_PORT, ClientConfig
from qtunnel.errors import ConfigError

__all__ = ["MAX_LINK", "SCHEME", "JoinLink", "is_host", "looks_like_link", "parse_join_link"]

SCHEME: Final = "qtunnel"
MAX_LINK: Final = 4096
"""Characters; a terminal takes no longer line."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~-]{16,512}\Z")
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{64}\Z")
_USER: Final = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_LABEL: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)\Z")
_PARAMETERS: Final = frozenset({"name", "fp", "user"})


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinLink:
    """A join link, taken apart. Neither repr() nor str() shows the token; text() does.

    Raises ConfigError when a part cannot be used.
    """

    host: str
    port: int = DEFAULT_PORT
    server_name: str
    fingerprint: str | None = None
    user: str
    token: str = field(repr=False)

    def __post_init__(self) -> None:
        if not is_host(self.host):
            raise ConfigError(f"the host {self.host!r} is neither a name nor an address", field="link")
        if not 1 <= self.port <= 65535:
            raise ConfigError(f"the port {self.port} is outside 1 to 65535", field="link")
        if not _is_host_name(self.server_name):
            raise ConfigError(
                f"the server name {self.server_name!r} is not a host name (and an address cannot be one)",
                field="link",
            )
        if self.fingerprint is not None and not _FINGERPRINT.match(self.fingerprint):
            raise ConfigError("fp is not 64 lower-case hexadecimal digits (SHA-256)", field="link")
        if not _USER.match(self.user):
            raise ConfigError(f"the user {self.user!r} is not a user name", field="link")
        if not _TOKEN.match(self.token):
            raise ConfigError("what follows the # is not a token; was the link cut short?", field="link")

    def text(self) -> str:
        """Return the link. Whoever sees it can join: never log it, never pass it as an argument."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        fingerprint = f"&fp={self.fingerprint}" if self.fingerprint else ""
        name = quote(self.server_name, safe="")
        return f"{SCHEME}://{host}:{self.port}/?name={name}{fingerprint}&user={self.user}#{self.token}"

    def client_config(self, **settings: Any) -> ClientConfig:
        """Return what a client needs to connect; settings: other fields of ClientConfig."""
        return ClientConfig(
            server=self.host,
            port=self.port,
            server_name=self.server_name,
            fingerprint=self.fingerprint,
            token=self.token,
            **settings,
        )


def is_host(text: str) -> bool:
    """Tell whether text is a host name or an address, as a link can carry it."""
    return _is_address(text) or _is_host_name(text)


def looks_like_link(text: str) -> bool:
    """Tell whether text is, or contains, what is or was meant as a join link."""
    return (f"{SCHEME}:" in text.lower() and "#" in text) or text.strip().lower().startswith(f"{SCHEME}:/")


def parse_join_link(text: str) -> JoinLink:
    """Take a join link apart; blanks and line ends around it do not matter.

    Raises:
        ConfigError: it is not one, with the reason; the message never repeats the token.
    """
    text = text.strip()
    if not text:
        raise ConfigError("it is empty", field="link")
    if len(text) > MAX_LINK:
        raise ConfigError(f"{len(text)} characters are more than a join link has ({MAX_LINK})", field="link")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ConfigError("it must be one line of ASCII text without blanks", field="link")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        # The library's own message may repeat parts of the link.
        raise ConfigError("the host or the port cannot be read", field="link") from None
    if parts.scheme != SCHEME:
        raise ConfigError(f"it does not begin with {SCHEME}://", field="link")
    if not host:
        raise ConfigError("there is no host after qtunnel://", field="link")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("a user belongs into ?user=, not before an @", field="link")
    if parts.path not in ("", "/"):
        raise ConfigError("there is a path where ? was expected", field="link")
    if not parts.fragment:
        raise ConfigError("it has no token: what follows the # is missing", field="link")
    values = _parameters(parts)
    if "user" not in values:
        raise ConfigError("user= is missing", field="link")
    name = values.get("name", host)
    if _is_address(name):
        raise ConfigError("name= is missing, which a link to an address needs", field="link")
    return JoinLink(
        host=_canonical_host(host),
        port=DEFAULT_PORT if port is None else port,
        server_name=name.lower(),
        fingerprint=values.get("fp"),
        user=values["user"],
        token=parts.fragment,
    )


def _parameters(parts: SplitResult) -> dict[str, str]:
    values: dict[str, str] = {}
    for item in parts.query.split("&") if parts.query else ():
        key, equals, value = item.partition("=")
        if key not in _PARAMETERS:
            raise ConfigError(f"unknown part {key[:20]!r}; known are fp, name, user", field="link")
        if not equals or not value:
            raise ConfigError(f"{key}= is empty", field="link")
        if key in values:
            raise ConfigError(f"{key}= is there twice", field="link")
        values[key] = unquote(value, errors="strict") if _is_decodable(value) else ""
        if not values[key]:
            raise ConfigError(f"{key}= cannot be read", field="link")
    return values


def _is_decodable(value: str) -> bool:
    try:
        unquote(value, errors="strict")
    except UnicodeDecodeError:
        return False
    return True


def _canonical_host(host: str) -> str:
    try:
        return str(ip_address(host))
    except ValueError:
        return host.lower()


def _is_address(text: str) -> bool:
    try:
        address = ip_address(text)
    except ValueError:
        return False
    # A zone such as fe80::1%eth0 means something on one host only.
    return not (isinstance(address, IPv6Address) and address.scope_id)


def _is_host_name(text: str) -> bool:
    if not 1 <= len(text) <= 253 or _is_address(text):
        return False
    return all(_LABEL.match(label) for label in text.split("."))
