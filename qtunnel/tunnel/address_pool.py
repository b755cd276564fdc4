"""Which inner addresses belong to which user, for as long as the user exists.

A user keeps its host number: the same offset in the IPv4 and in the IPv6 pool, across reconnects and, through
`leases`, restarts. RFC 9484 §11 would rather not have lasting addresses; that an address stays a user's is what
people who run servers at home and firewalls by address need (docs/design/0003-connect-ip-decisions.md).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface

from qtunnel.config import IPAddress

__all__ = ["AddressPool", "Lease"]


@dataclass(frozen=True, slots=True)
class Lease:
    """One user's addresses; a family without a pool is None."""

    ipv4: IPv4Address | None
    ipv6: IPv6Address | None

    def addresses(self) -> tuple[IPAddress, ...]:
        """Return the addresses there are, IPv4 first."""
        return tuple(address for address in (self.ipv4, self.ipv6) if address is not None)


class AddressPool:
    """Host numbers 1, 2, … handed out to users, never the server's own, never a network or broadcast address.

    leases: host numbers known from an earlier run, by user name. Unusable ones (the pool has changed) are ignored.
    """

    def __init__(
        self,
        pool4: IPv4Interface | None,
        pool6: IPv6Interface | None,
        leases: Mapping[str, int] | None = None,
    ) -> None:
        if pool4 is None and pool6 is None:
            raise ValueError("at least one pool is needed")
        self._pool4 = pool4
        self._pool6 = pool6
        sizes = []
        self._reserved = {0}
        if pool4 is not None:
            sizes.append(pool4.network.num_addresses - 2)  # neither network nor broadcast address
            self._reserved.add(int(pool4.ip) - int(pool4.network.network_address))
        if pool6 is not None:
            sizes.append(min(pool6.network.num_addresses - 1, 1 << 32))  # not the subnet-router anycast address
            self._reserved.add(int(pool6.ip) - int(pool6.network.network_address))
        self._last = min(sizes)
        self._numbers: dict[str, int] = {}
        self._users: dict[int, str] = {}
        self._next = 1
        for user, number in (leases or {}).items():
            if 1 <= number <= self._last and number not in self._reserved and number not in self._users:
                self._numbers[user] = number
                self._users[number] = user

    @property
    def capacity(self) -> int:
        """Return how many users the pool can hold."""
        return self._last - sum(1 for number in self._reserved if 1 <= number <= self._last)

    def leases(self) -> dict[str, int]:
        """Return the host numbers to keep for the next run, by user name."""
        return dict(self._numbers)

    def lease(self, user: str, known_users: Container[str] = ()) -> Lease | None:
        """Return the user's addresses, assigning them at first; None when the pool is full.

        known_users: users that still exist. A full pool takes back the addresses of those that do not.
        """
        number = self._numbers.get(user)
        if number is None:
            number = self._free_number()
            if number is None:
                self._reclaim(known_users)
                number = self._free_number()
            if number is None:
                return None
            self._numbers[user] = number
            self._users[number] = user
        return self._addresses(number)

    def release(self, user: str) -> None:
        """Give a removed user's addresses back to the pool."""
        number = self._numbers.pop(user, None)
        if number is not None:
            del self._users[number]

    def _reclaim(self, known_users: Container[str]) -> None:
        for user in [user for user in self._numbers if user not in known_users]:
            self.release(user)

    def _free_number(self) -> int | None:
        if len(self._users) >= self.capacity:
            return None
        # Going round, so that a released address is not the next one handed out.
        number = self._next
        while number in self._users or number in self._reserved:
            number = number + 1 if number < self._last else 1
        self._next = number + 1 if number < self._last else 1
        return number

    def _addresses(self, number: int) -> Lease:
        ipv4 = self._pool4.network.network_address + number if self._pool4 is not None else None
        ipv6 = self._pool6.network.network_address + number if self._pool6 is not None else None
        return Lease(ipv4, ipv6)
