from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.tunnel.address_pool import AddressPool

POOL4 = IPv4Interface("10.77.0.1/29")
POOL6 = IPv6Interface("fd00:77::1/64")


def test_the_same_host_number_is_used_in_both_families() -> None:
    lease = AddressPool(POOL4, POOL6).lease("alice")
    assert lease is not None
    assert lease.addresses() == (IPv4Address("10.77.0.2"), IPv6Address("fd00:77::2"))


def test_an_address_stays_a_users() -> None:
    pool = AddressPool(POOL4, POOL6)
    first = pool.lease("alice")
    pool.lease("bob")
    assert pool.lease("alice") == first


def test_leases_survive_a_restart() -> None:
    pool = AddressPool(POOL4, POOL6)
    pool.lease("alice")
    bob = pool.lease("bob")
    assert AddressPool(POOL4, POOL6, pool.leases()).lease("bob") == bob


def test_leases_that_no_longer_fit_the_pool_are_ignored() -> None:
    pool = AddressPool(POOL4, POOL6, {"server": 1, "outside": 900, "negative": -3, "ok": 4, "same": 4})
    assert pool.leases() == {"ok": 4}


def test_the_servers_own_the_network_and_the_broadcast_address_are_never_given_out() -> None:
    pool = AddressPool(POOL4, None)
    leases = [pool.lease(f"u{n}") for n in range(pool.capacity)]
    given_out = {str(lease.ipv4) for lease in leases if lease is not None}
    assert given_out == {f"10.77.0.{n}" for n in range(2, 7)}


def test_a_full_pool_has_no_lease() -> None:
    pool = AddressPool(POOL4, POOL6)
    names = [f"u{n}" for n in range(pool.capacity)]
    for name in names:
        assert pool.lease(name, names) is not None
    assert pool.lease("late", [*names, "late"]) is None


def test_a_full_pool_takes_back_the_addresses_of_removed_users() -> None:
    pool = AddressPool(POOL4, POOL6)
    names = [f"u{n}" for n in range(pool.capacity)]
    for name in names:
        pool.lease(name, names)
    assert pool.lease("late", [*names[1:], "late"]) is not None
    assert "u0" not in pool.leases()


def test_a_released_address_is_not_the_next_one_given_out() -> None:
    pool = AddressPool(POOL4, POOL6)
    first = pool.lease("alice")
    pool.release("alice")
    assert pool.lease("bob") != first


def test_an_ipv6_pool_alone_gives_no_ipv4_address() -> None:
    lease = AddressPool(None, POOL6).lease("alice")
    assert lease is not None
    assert lease.ipv4 is None
    assert lease.ipv6 == IPv6Address("fd00:77::2")


def test_no_pool_at_all_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="at least one pool"):
        AddressPool(None, None)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=60))
def test_no_address_is_ever_two_users(steps: list[tuple[bool, int]]) -> None:
    pool = AddressPool(POOL4, POOL6)
    for take, number in steps:
        if take:
            pool.lease(f"u{number}", [f"u{n}" for n in range(10)])
        else:
            pool.release(f"u{number}")
        numbers = list(pool.leases().values())
        assert len(numbers) == len(set(numbers))
        assert all(2 <= each <= 6 for each in numbers)
