"""The URI Template a client is configured with, and its expansion into :authority and :path (RFC 9484 §3).

A level 3 template of RFC 6570, less the expansions RFC 9484 rules out:

    {target}  {target,ipproto}     simple
    {?target,ipproto}              query
    {&target}                      query, continued

Variables other than target and ipproto may be there; they have no value, so they expand to nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final
from urllib.parse import quote

from qtunnel.errors import ConfigError

__all__ = ["DEFAULT_PATH_PREFIX", "WILDCARD", "UriTemplate", "default_template", "parse_template"]

DEFAULT_PATH_PREFIX: Final = "/.well-known/masque/ip"
WILDCARD: Final = "*"
"""The value of a variable that expresses no preference (RFC 9484 §4.6)."""

FIELD: Final = "uri_template"
FORBIDDEN_OPERATORS: Final = {
    "+": "reserved expansion",
    "#": "fragment expansion",
    ".": "label expansion",
    "/": "path segment expansion",
    ";": "path-style parameter expansion",
}
VARIABLE_NAME: Final = re.compile(r"(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})(?:\.?(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*")
LITERALS: Final = re.compile(r"(?:[!$&-;=?-\[\]_a-z~]|%[0-9A-Fa-f]{2})*")
"""What RFC 6570 §2.1 lets stand outside braces, and "'" (its erratum 6937); "#" is refused before."""
ABSOLUTE_FORM: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(.*)", re.DOTALL)
AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(?::([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class Expression:
    """What stands between braces. operator is "", "?" or "&"."""

    operator: str
    names: tuple[str, ...]

    def expand(self, values: dict[str, str]) -> str:
        """Return the expansion (RFC 6570 §3.2); a name without a value adds nothing."""
        defined = [(name, _encode(values[name])) for name in self.names if name in values]
        if not self.operator:
            return ",".join(value for _, value in defined)
        pairs = "&".join(f"{name}={value}" for name, value in defined)
        return f"{self.operator}{pairs}" if pairs else ""


@dataclass(frozen=True, slots=True)
class UriTemplate:
    """A checked template. scheme is always "https"; authority has no variables."""

    text: str
    scheme: str
    authority: str
    parts: tuple[str | Expression, ...]
    """Path and query, literals and expressions in order."""

    def expand(self, target: str | None = None, ipproto: str | None = None) -> tuple[str, str]:
        """Return (:authority, :path) with the query in the path.

        target and ipproto are plain text: what has to be percent-encoded is encoded here, once. None is "*".

        Raises:
            ConfigError: a value is empty (RFC 9484 §3).
        """
        values = {
            "target": WILDCARD if target is None else target,
            "ipproto": WILDCARD if ipproto is None else ipproto,
        }
        for name, value in values.items():
            if not value:
                raise ConfigError('is empty; use "*" for no preference', field=name)
        path = "".join(part if isinstance(part, str) else part.expand(values) for part in self.parts)
        return self.authority, path


def default_template(host: str, port: int) -> UriTemplate:
    """Return the template for a proxy of which only host and port are known (RFC 9484 §3).

    host: a name, or an address without brackets.

    Raises:
        ConfigError: host or port cannot stand in a URI.
    """
    bracketed = f"[{host}]" if ":" in host else host
    authority = f"{bracketed}:{port}"
    _check_authority(authority)
    return parse_template(f"https://{authority}{DEFAULT_PATH_PREFIX}/{{target}}/{{ipproto}}/")


def parse_template(text: str) -> UriTemplate:
    """Check a template by RFC 9484 §3 and return it.

    Raises:
        ConfigError: it breaks one of the rules. Nothing may be sent to that proxy then.
    """
    for char in text:
        if not "!" <= char <= "~":
            raise _refused(f"has the character {char!r}; only visible ASCII is allowed")
    form = ABSOLUTE_FORM.fullmatch(text)
    if form is None:
        raise _refused(f"{text!r} has no scheme and authority, as https://host/path has")
    scheme, authority, rest = form.groups()
    if scheme.lower() != "https":
        raise _refused(f"has the scheme {scheme!r}; a tunnel is encrypted, so only https will do")
    if not rest.startswith("/"):
        raise _refused(f"has no path that begins with a slash behind {authority!r}")
    _check_authority(authority)
    return UriTemplate(text, "https", authority, tuple(_parse_parts(rest)))


def _check_authority(authority: str) -> None:
    if "{" in authority or "}" in authority:
        raise _refused("has a variable outside path and query")
    form = AUTHORITY.fullmatch(authority)
    if form is None:
        raise _refused(f"has the authority {authority!r}, neither host nor host:port")
    host, port = form.groups()
    if host.startswith("["):
        try:
            IPv6Address(host[1:-1])
        except ValueError as error:
            raise _refused(f"has the host {host}, which is no IPv6 address") from error
    if port is not None and not 1 <= int(port) <= 65535:
        raise _refused(f"has the port {port}, outside 1 to 65535")


def _parse_parts(text: str) -> list[str | Expression]:
    """Cut path and query at the braces."""
    parts: list[str | Expression] = []
    while text:
        literals, brace, text = text.partition("{")
        if "#" in literals:
            raise _refused("has a fragment, which is never sent")
        if LITERALS.fullmatch(literals) is None:
            raise _refused(f"has characters in {literals!r} that a URI must percent-encode, or a lone brace")
        if literals:
            parts.append(literals)
        if brace:
            inside, closing, text = text.partition("}")
            if not closing:
                raise _refused("has a brace that is not closed")
            parts.append(_parse_expression(inside))
    return parts


def _parse_expression(inside: str) -> Expression:
    operator = inside[:1]
    if operator in FORBIDDEN_OPERATORS:
        raise _refused(f"uses {FORBIDDEN_OPERATORS[operator]} ({operator}), which RFC 9484 rules out")
    if operator not in ("?", "&"):
        operator = ""
    names = inside[len(operator) :].split(",")
    for name in names:
        if VARIABLE_NAME.fullmatch(name) is None:
            why = "a level 4 modifier" if name.endswith("*") or ":" in name else "no variable name"
            raise _refused(f"has {name!r} between braces, {why}")
    return Expression(operator, tuple(names))


def _encode(value: str) -> str:
    """Percent-encode a value, but for the wildcard.

    RFC 6570 would make the wildcard %2A; RFC 9484 §4.6 and its examples write it plainly, and that is what
    deployed proxies compare with. A proxy that decodes, as it must, cannot tell the difference.
    """
    return WILDCARD if value == WILDCARD else quote(value, safe="")


def _refused(what: str) -> ConfigError:
    return ConfigError(what, field=FIELD)
