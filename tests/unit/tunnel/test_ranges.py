from ipaddress import ip_address, ip_network

from hypothesis import given
from hypothesis import strategies as st

from qtunnel.masque.address_capsules import AddressRange
from qtunnel.tunnel.ranges import as_ip_ranges, as_prefixes, as_ranges, contains


def test_ranges_are_sorted_by_family_and_address_and_merged() -> None:
    ranges = as_ranges(map(ip_network, ["2001:db8::/64", "10.2.0.0/16", "10.0.0.0/8", "9.0.0.0/8"]))
    assert [(str(each.start), str(each.end)) for each in ranges] == [
        ("9.0.0.0", "9.255.255.255"),
        ("10.0.0.0", "10.255.255.255"),
        ("2001:db8::", "2001:db8::ffff:ffff:ffff:ffff"),
    ]


def test_a_range_becomes_the_fewest_prefixes() -> None:
    prefixes, more = as_prefixes([AddressRange(ip_address("192.0.2.1"), ip_address("192.0.2.4"))], limit=10)
    assert [str(each) for each in prefixes] == ["192.0.2.1/32", "192.0.2.2/31", "192.0.2.4/32"]
    assert not more


def test_a_peer_cannot_make_more_prefixes_than_the_limit() -> None:
    wide = AddressRange(ip_address("0.0.0.1"), ip_address("255.255.255.254"))
    prefixes, more = as_prefixes([wide], limit=5)
    assert len(prefixes) == 5
    assert more


def test_ranges_that_differ_by_protocol_alone_give_one_prefix() -> None:
    start, end = ip_address("10.0.0.0"), ip_address("10.255.255.255")
    prefixes, more = as_prefixes([AddressRange(start, end, 6), AddressRange(start, end, 17)], limit=1)
    assert prefixes == (ip_network("10.0.0.0/8"),)
    assert not more


def test_containment_knows_families() -> None:
    assert contains(ip_network("10.0.0.0/8"), ip_network("10.1.0.0/16"))
    assert contains(ip_network("10.0.0.0/8"), ip_network("10.0.0.0/8"))
    assert not contains(ip_network("10.1.0.0/16"), ip_network("10.0.0.0/8"))
    assert not contains(ip_network("::/0"), ip_network("10.0.0.0/8"))


def test_filter_ranges_carry_the_protocol() -> None:
    (each,) = as_ip_ranges([AddressRange(ip_address("10.0.0.1"), ip_address("10.0.0.9"), 17)])
    assert (each.version, each.start, each.end, each.protocol) == (4, 0x0A000001, 0x0A000009, 17)


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(8, 32)), max_size=8))
def test_networks_survive_the_way_through_ranges(pairs: list[tuple[int, int]]) -> None:
    networks = [ip_network((address, length), strict=False) for address, length in pairs]
    prefixes, _ = as_prefixes(as_ranges(networks), limit=1000)
    for network in networks:
        assert any(contains(prefix, network) for prefix in prefixes) or not prefixes
    covered = sum(prefix.num_addresses for prefix in prefixes)
    assert covered <= sum(network.num_addresses for network in networks)
