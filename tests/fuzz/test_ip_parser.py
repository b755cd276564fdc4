"""Any bytes into qtunnel.ip give a value, our own error, or a counted drop; never another exception.

Half of the packets are whole ones with a few bytes changed, since random bytes seldom get past the first check.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from hypothesis import given
from hypothesis import strategies as st

from qtunnel.errors import LocalProtocolError, MalformedPacketError
from qtunnel.ip.echo import answer_echo, is_echo, parse_echo_reply
from qtunnel.ip.flow import flow_keys
from qtunnel.ip.forward import Forwarder, HopLimit, IcmpErrors
from qtunnel.ip.fragment import fragment_ipv4
from qtunnel.ip.header import destination, parse_header, source
from qtunnel.ip.policy import IpRange, Policy
from tests.unit.ip.packets import (
    CLIENT4,
    CLIENT6,
    HOST4,
    HOST6,
    SERVER4,
    SERVER6,
    UDP,
    assert_valid,
    authentication,
    extension,
    fragment6,
    icmp4,
    icmp6,
    icmp6_message,
    ipv4,
    ipv6,
    slow_checksum,
    udp,
)

ADDRESS4 = st.sampled_from([CLIENT4, SERVER4, HOST4, "0.0.0.0", "224.0.0.1", "255.255.255.255", "169.254.0.1"])
ADDRESS6 = st.sampled_from([CLIENT6, SERVER6, HOST6, "::", "::1", "ff02::1", "ff0e::1", "fe80::1"])
NEXT_HEADER = st.sampled_from([0, 6, 17, 43, 44, 50, 51, 58, 59, 60])
EXTENSION = st.one_of(
    st.builds(extension, NEXT_HEADER, st.sampled_from([8, 16, 24]), st.binary(max_size=6)),
    st.builds(fragment6, NEXT_HEADER, offset=st.sampled_from([0, 8, 1480, 65528]), more=st.booleans()),
    st.builds(authentication, NEXT_HEADER, st.sampled_from([8, 12, 16, 24])),
)
PAYLOAD = st.one_of(
    st.binary(max_size=60),
    st.builds(udp, st.sampled_from([8, 9, 1260, 1380, 1480])),
    st.builds(icmp6_message, ADDRESS6, ADDRESS6, st.integers(0, 255), rest=st.binary(min_size=4, max_size=20)),
)
WHOLE = st.one_of(
    st.builds(
        ipv4,
        PAYLOAD,
        source=ADDRESS4,
        destination=ADDRESS4,
        protocol=NEXT_HEADER,
        ttl=st.sampled_from([0, 1, 64]),
        df=st.booleans(),
        mf=st.booleans(),
        offset=st.sampled_from([0, 0, 8, 65528]),
        options=st.binary(max_size=40).map(lambda options: options + bytes(-len(options) % 4)),
    ),
    st.builds(icmp4, st.integers(0, 255), rest=st.binary(max_size=30), source=ADDRESS4, destination=ADDRESS4),
    st.builds(
        lambda chain, payload, **header: ipv6(b"".join(chain) + payload, **header),
        st.lists(EXTENSION, max_size=5),
        PAYLOAD,
        source=ADDRESS6,
        destination=ADDRESS6,
        next_header=NEXT_HEADER,
        hop_limit=st.sampled_from([0, 1, 64]),
    ),
    st.builds(
        icmp6, st.integers(0, 255), rest=st.binary(min_size=4, max_size=30), source=ADDRESS6, destination=ADDRESS6
    ),
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A whole packet, cut, lengthened, or with a few bytes changed; with IPv4's checksum often put right again."""
    packet = bytearray(draw(WHOLE))
    for position, value in draw(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 255)), max_size=4)):
        if position < len(packet):
            packet[position] = value
    cut = draw(st.integers(-3, 3))
    if cut < 0:
        del packet[cut:]
    else:
        packet += bytes(cut)
    header_length = (packet[0] & 15) * 4 if packet else 0
    if len(packet) >= header_length >= 20 and packet[0] >> 4 == 4 and draw(st.booleans()):
        packet[10:12] = b"\x00\x00"
        packet[10:12] = slow_checksum(bytes(packet[:header_length])).to_bytes(2, "big")
    return bytes(packet)


ANY = st.one_of(st.binary(max_size=120), WHOLE, damaged())


@given(ANY)
def test_any_bytes_are_a_header_or_malformed(packet: bytes) -> None:
    assert len(source(packet)) in (0, 4, 16)
    assert len(destination(packet)) in (0, 4, 16)
    try:
        header = parse_header(packet)
    except MalformedPacketError:
        return
    assert header.total_length == len(packet)
    assert 20 <= header.header_length <= len(packet)
    assert (source(packet), destination(packet)) == (header.source, header.destination)
    assert {len(header.source), len(header.destination)} == ({4} if header.version == 4 else {16})
    assert 0 <= header.protocol <= 255
    assert header.fragment_offset % 8 == 0


@given(
    st.lists(ANY, max_size=6),
    st.one_of(st.none(), st.integers(0, 100), st.sampled_from([1200, 1280, 1400, 65535])),
    st.sampled_from(HopLimit),
    st.booleans(),
    st.booleans(),
)
def test_any_burst_is_forwarded_answered_or_counted(
    packets: list[bytes], mtu: int | None, hop_limit: HopLimit, scoped: bool, own_end: bool
) -> None:
    destinations = [IpRange.of_network(ip_network(each), UDP if scoped else 0) for each in ("0.0.0.0/0", "::/0")]
    errors = IcmpErrors(address4=ip_address(SERVER4), address6=ip_address(SERVER6), rate=1e6, burst=1000)
    ours = Forwarder(
        policy=Policy(destinations=destinations, own_addresses=[ip_address(SERVER4)], link_local=own_end),
        icmp=errors,
        mtu=mtu,
        hop_limit=hop_limit,
    )
    for packet in packets * 2:  # a pair that passed is known the second time
        errors_before = errors.sent
        forwarded = ours.forward([packet], 1.0)
        for passed in forwarded.packets:
            version = parse_header(passed).version
            assert mtu is None or len(passed) <= (mtu if version == 4 else max(mtu, 1280))
        for reply in forwarded.replies:
            assert_valid(reply)
            parse_header(reply)
        echoes_answered = len(forwarded.replies) - (errors.sent - errors_before)
        assert bool(forwarded.packets) + echoes_answered + sum(forwarded.drops.values()) == 1


@given(ANY, ADDRESS4, ADDRESS6)
def test_any_bytes_are_an_echo_or_not(packet: bytes, own4: str, own6: str) -> None:
    for own in (own4, own6):
        answer = answer_echo(packet, ip_address(own))
        if answer is not None:
            assert_valid(answer)
            assert is_echo(packet)
            assert parse_echo_reply(answer) is not None
            assert parse_echo_reply(packet) is None


@given(ANY, st.integers(0, 100))
def test_any_bytes_are_fragments_or_our_error(packet: bytes, mtu: int) -> None:
    try:
        fragments = fragment_ipv4(packet, mtu)
    except (MalformedPacketError, LocalProtocolError):
        return
    assert fragments
    assert all(len(fragment) <= mtu for fragment in fragments)
    for fragment in fragments:
        parse_header(fragment)


@given(st.lists(ANY, max_size=6))
def test_any_bytes_have_a_flow(packets: list[bytes]) -> None:
    assert len(flow_keys(packets)) == len(packets)
