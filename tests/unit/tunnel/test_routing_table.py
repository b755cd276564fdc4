from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from hypothesis import given
from hypothesis import strategies as st

from qtunnel.tunnel.routing_table import RoutingTable


def packed(text: str) -> bytes:
    return ip_address(text).packed


def test_a_host_route_wins_over_the_network_around_it() -> None:
    table: RoutingTable[str] = RoutingTable()
    table.add(ip_network("10.0.0.0/8"), "net")
    table.add(ip_network("10.1.2.3/32"), "host")
    assert table.lookup(packed("10.1.2.3")) == "host"
    assert table.lookup(packed("10.1.2.4")) == "net"


def test_nothing_matches_in_an_empty_table() -> None:
    table: RoutingTable[str] = RoutingTable()
    assert table.lookup(packed("10.1.2.3")) is None


def test_families_do_not_mix() -> None:
    table: RoutingTable[str] = RoutingTable()
    table.add(ip_network("0.0.0.0/0"), "four")
    assert table.lookup(packed("2001:db8::1")) is None
    table.add(ip_network("::/0"), "six")
    assert table.lookup(packed("2001:db8::1")) == "six"
    assert table.lookup(packed("10.1.2.3")) == "four"


def test_removing_a_value_removes_all_it_had() -> None:
    table: RoutingTable[str] = RoutingTable()
    table.add(ip_network("10.1.2.3/32"), "a")
    table.add(ip_network("192.168.0.0/16"), "a")
    table.add(ip_network("10.1.2.4/32"), "b")
    table.remove_all("a")
    assert table.lookup(packed("10.1.2.3")) is None
    assert table.lookup(packed("192.168.1.1")) is None
    assert table.lookup(packed("10.1.2.4")) == "b"


def test_removing_what_is_not_there_does_nothing() -> None:
    table: RoutingTable[str] = RoutingTable()
    table.remove(ip_network("10.0.0.0/8"))
    assert table.get(ip_network("10.0.0.0/8")) is None


networks4 = st.builds(
    lambda address, length: ip_network((address, length), strict=False),
    st.integers(0, 2**32 - 1).map(IPv4Address),
    st.integers(0, 32),
)
networks6 = st.builds(
    lambda address, length: ip_network((address, length), strict=False),
    st.integers(0, 2**128 - 1).map(IPv6Address),
    st.integers(0, 128),
)


@given(st.lists(st.one_of(networks4, networks6), max_size=12), st.data())
def test_lookup_agrees_with_the_longest_prefix_of_a_naive_search(networks: list, data: st.DataObject) -> None:
    table: RoutingTable[str] = RoutingTable()
    for network in networks:
        table.add(network, str(network))
    near = [int(network.network_address) for network in networks if network.version == 4]
    address = data.draw(
        st.one_of(st.integers(0, 2**32 - 1), *([st.sampled_from(near)] if near else [])).map(IPv4Address)
    )
    matching = [network for network in networks if network.version == 4 and address in network]
    expected = max(matching, key=lambda network: network.prefixlen, default=None)
    assert table.lookup(address.packed) == (None if expected is None else str(expected))
