"""Longest-prefix match from an inner destination to a session."""

from __future__ import annotations

from typing import Generic, TypeVar

from qtunnel.config import IPNetwork

__all__ = ["RoutingTable"]

T = TypeVar("T")


class RoutingTable(Generic[T]):
    """Host routes in one dict, as nearly all are; networks by length, longest first.

    A lookup costs one dict access for a client's own address, and one more for each prefix length in use.
    """

    def __init__(self) -> None:
        self._hosts: dict[bytes, T] = {}
        self._networks: dict[IPNetwork, T] = {}
        # (address length in bytes, shift, {network bits: value}), longest prefix first within a family
        self._levels: list[tuple[int, int, dict[int, T]]] = []

    def add(self, network: IPNetwork, value: T) -> None:
        """Route a network; replaces what was routed there."""
        self._networks[network] = value
        if network.prefixlen == network.max_prefixlen:
            self._hosts[network.network_address.packed] = value
        else:
            self._rebuild()

    def remove(self, network: IPNetwork) -> None:
        """Forget a network, if it is there."""
        if self._networks.pop(network, None) is None:
            return
        if network.prefixlen == network.max_prefixlen:
            del self._hosts[network.network_address.packed]
        else:
            self._rebuild()

    def remove_all(self, value: T) -> None:
        """Forget every network routed to this value."""
        for network in self.networks_of(value):
            self.remove(network)

    def get(self, network: IPNetwork) -> T | None:
        """Return what exactly this network is routed to."""
        return self._networks.get(network)

    def networks_of(self, value: T) -> list[IPNetwork]:
        """Return the networks routed to this value."""
        return [network for network, each in self._networks.items() if each is value]

    def lookup(self, address: bytes) -> T | None:
        """Return the value for an address of 4 or 16 bytes; None when nothing matches."""
        value = self._hosts.get(address)
        if value is not None or not self._levels:
            return value
        length = len(address)
        number = int.from_bytes(address)
        for family_length, shift, values in self._levels:
            if family_length == length and (value := values.get(number >> shift)) is not None:
                return value
        return None

    def _rebuild(self) -> None:
        levels: dict[tuple[int, int], dict[int, T]] = {}
        for network, value in self._networks.items():
            if network.prefixlen == network.max_prefixlen:
                continue
            shift = network.max_prefixlen - network.prefixlen
            key = (network.max_prefixlen // 8, shift)
            levels.setdefault(key, {})[int(network.network_address) >> shift] = value
        self._levels = [(length, shift, values) for (length, shift), values in sorted(levels.items())]
