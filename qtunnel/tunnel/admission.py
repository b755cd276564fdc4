"""May this request have a tunnel, and with which addresses? The server's decision, made without I/O."""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from typing import Final

from qtunnel.config import IPAddress, IPNetwork, ServerConfig, User, token_digest
from qtunnel.masque.request import (
    ConnectIpRequest,
    Headers,
    RequestRejectedError,
    parse_request,
    reject_response,
)
from qtunnel.tunnel.address_pool import AddressPool, Lease

__all__ = ["Admission", "Admitted", "PendingName", "Refused"]

EVERYTHING: Final = (ip_network("0.0.0.0/0"), ip_network("::/0"))


@dataclass(frozen=True, slots=True)
class Admitted:
    """A tunnel for this user: its addresses, and the scope it asked for (RFC 9484 §4.6).

    scope: networks the request is limited to; None for everything. protocol: 0 for any.
    """

    user: User
    lease: Lease
    scope: tuple[IPNetwork, ...] | None
    protocol: int


@dataclass(frozen=True, slots=True)
class Refused:
    """An error answer. close: end the connection soon after, as the client has no more to do on it."""

    status: int
    text: str
    headers: Headers = field(repr=False)
    close: bool = False


@dataclass(frozen=True, slots=True)
class PendingName:
    """The target is a host name, to be resolved before the answer (RFC 9484 §4.1)."""

    name: str
    admitted: Admitted


class Admission:
    """Users, the pool, and what a request must look like."""

    def __init__(self, config: ServerConfig, pool: AddressPool, users: Iterable[User]) -> None:
        self._config = config
        self._pool = pool
        self._users: dict[str, User] = {}
        self._by_digest: dict[str, User] = {}
        self.set_users(users)

    @property
    def user_count(self) -> int:
        """Return how many users there are."""
        return len(self._users)

    def set_users(self, users: Iterable[User]) -> None:
        """Replace the users."""
        self._users = {user.name: user for user in users}
        self._by_digest = {user.token_sha256: user for user in self._users.values()}

    def user(self, name: str) -> User | None:
        """Return a user by name."""
        return self._users.get(name)

    def decide(self, headers: Headers, *, end: bool) -> Admitted | Refused | PendingName:
        """Decide about one request.

        Raises: PeerProtocolError for a malformed one (RFC 9114 §4.1.2).
        """
        try:
            request = parse_request(headers, path_prefix=self._config.path_prefix)
        except RequestRejectedError as error:
            return Refused(error.status, str(error), error.headers)
        user = self._authenticate(request.token)
        if user is None:
            what = "no bearer token" if request.token is None else "unknown token"
            return self._refuse(401, what, close=True)
        if end:
            return self._refuse(400, "the request ended before the tunnel began")
        lease = self._pool.lease(user.name, self._users)
        if lease is None:
            return self._refuse(503, "no free address in the pool", close=True)
        admitted = Admitted(user, lease, _scope(request), request.ipproto or 0)
        if request.target_name is not None:
            return PendingName(request.target_name, admitted)
        return admitted

    def resolved(self, pending: PendingName, addresses: Collection[IPAddress]) -> Admitted | Refused:
        """Go on after the target's name was resolved; no address means it was not (RFC 9484 §4.1)."""
        if not addresses:
            return self._refuse(502, f"cannot resolve {pending.name}", proxy_status="dns_error")
        families = {address.version for address in pending.admitted.lease.addresses()}
        scope = tuple(ip_network(address) for address in addresses if address.version in families)
        if not scope:
            return self._refuse(502, f"no address of {pending.name} in an assigned family")
        return replace(pending.admitted, scope=scope)

    def _authenticate(self, token: str | None) -> User | None:
        if token is None:
            return None
        digest = token_digest(token)
        user = self._by_digest.get(digest)
        if user is None or not hmac.compare_digest(user.token_sha256, digest):
            return None
        return user

    @staticmethod
    def _refuse(status: int, text: str, *, close: bool = False, proxy_status: str | None = None) -> Refused:
        return Refused(status, text, reject_response(status, proxy_status=proxy_status), close)


def _scope(request: ConnectIpRequest) -> tuple[IPNetwork, ...] | None:
    return None if request.target_network is None else (request.target_network,)
