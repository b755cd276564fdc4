"""Pools are chosen at random, and never where the host is already."""

from __future__ import annotations

import random
from ipaddress import IPv4Network, IPv6Network, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.config import IPNetwork
from qtunnel.errors import NetworkOverlapError
from qtunnel.state.pools import POPULAR4, PRIVATE4, choose_pool4, choose_pool6

_private4 = st.integers(8, 28).flatmap(
    lambda length: st.ip_addresses(v=4, network="10.0.0.0/8").map(
        lambda address: ip_network(f"{address}/{length}", strict=False)
    )
)
_private6 = st.integers(14, 64).flatmap(
    lambda length: st.ip_addresses(v=6, network="fd00::/8").map(
        lambda address: ip_network(f"{address}/{length}", strict=False)
    )
)


@given(st.lists(_private4, max_size=20), st.integers(0, 2**32))
def test_an_ipv4_pool_is_a_private_slash_24_that_overlaps_nothing(taken: list[IPNetwork], seed: int) -> None:
    pool = choose_pool4(taken, random.Random(seed))
    assert pool.network.prefixlen == 24
    assert pool.ip == pool.network.network_address + 1
    assert any(pool.network.subnet_of(block) for block in PRIVATE4)
    assert not any(pool.network.overlaps(network) for network in taken if isinstance(network, IPv4Network))


@given(st.lists(_private6, max_size=20), st.integers(0, 2**32))
def test_an_ipv6_pool_is_a_unique_local_slash_64_that_overlaps_nothing(taken: list[IPNetwork], seed: int) -> None:
    pool = choose_pool6(taken, random.Random(seed))
    assert pool.network.prefixlen == 64
    assert pool.ip == pool.network.network_address + 1
    assert pool.network.subnet_of(IPv6Network("fd00::/8"))
    assert not any(pool.network.overlaps(network) for network in taken if isinstance(network, IPv6Network))


def test_popular_networks_are_avoided_while_others_are_free() -> None:
    for seed in range(200):
        pool = choose_pool4([], random.Random(seed))
        assert not any(pool.network.overlaps(popular) for popular in POPULAR4), pool


def test_a_popular_network_is_taken_when_nothing_else_is_free() -> None:
    free = IPv4Network("172.17.0.0/16")
    taken = [ip_network("10.0.0.0/8"), *IPv4Network("172.16.0.0/12").address_exclude(free)]
    assert choose_pool4(taken, random.Random(1)).network.subnet_of(free)


def test_a_default_route_takes_nothing() -> None:
    choose_pool4([ip_network("0.0.0.0/0")], random.Random(1))
    choose_pool6([ip_network("::/0")], random.Random(1))


def test_a_host_that_uses_everything_is_told_what_to_type() -> None:
    with pytest.raises(NetworkOverlapError, match="--pool4"):
        choose_pool4([ip_network("10.0.0.0/8"), ip_network("172.16.0.0/12")], random.Random(1))
    with pytest.raises(NetworkOverlapError, match="--pool6"):
        choose_pool6([ip_network("fc00::/7")], random.Random(1))


def test_two_servers_seldom_choose_the_same() -> None:
    pools = {choose_pool4([], random.Random(seed)) for seed in range(100)}
    assert len(pools) > 95
