"""What is put together: only what the kernel can cut again into the very same packets."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.flow_runs import LEAST_FLOW
from qtunnel.linux.coalescing import coalesce, coalesce_flow
from qtunnel.linux.segmentation import Segmenter
from qtunnel.linux.vnet_hdr import MAX_SEGMENTS, MAX_SUPER_PACKET, NEEDS_CSUM, VNET_HEADER, Gso
from qtunnel.packet_run import PacketRun, flatten
from tests.unit.linux.packets import (
    ACK,
    CWR,
    FIN,
    PSH,
    V4,
    V6,
    checksum,
    datagrams,
    ip_packet,
    is_valid,
    stream,
    tcp_segment,
    udp_datagram,
)

TIMESTAMPS = b"\1\1\x08\x0a" + bytes(range(8))
families = pytest.mark.parametrize("addresses", [V4, V6], ids=["IPv4", "IPv6"])
COUNTS = [2, 3, 4, 8, 46, MAX_SEGMENTS]


def content(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def cut_again(packets: Sequence[bytes]) -> list[bytes]:
    """Coalesce, and cut as the kernel would."""
    segmenter = Segmenter()
    result: list[bytes] = []
    for together in coalesce(packets, least=2):
        result += packets[len(result) : together.first]
        assert together.count > 1
        result += flatten(segmenter.split(memoryview(b"".join(together.pieces))))
        assert len(result) == together.first + together.count
    return result + list(packets[len(result) :])


def groups(packets: Sequence[bytes], **which: int) -> list[tuple[int, int]]:
    """Return first index and number of the packets put together, even if they are two."""
    which = {"least": 2} | which
    return [(together.first, together.count) for together in coalesce(packets, **which)]  # type: ignore[arg-type]


@families
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("missing", [0, 1, 2, 99])
@pytest.mark.parametrize("flags", [ACK, ACK | PSH])
def test_the_segments_of_a_stream_become_one_super_packet(
    addresses: tuple[str, str], count: int, missing: int, flags: int
) -> None:
    packets = stream(content(100 * count - missing), 100, addresses, options=TIMESTAMPS, last_flags=flags)
    assert groups(packets) == [(0, count)]
    assert cut_again(packets) == packets


@families
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("missing", [0, 1, 2, 99])
def test_datagrams_of_one_size_become_one_super_packet(
    addresses: tuple[str, str], count: int, missing: int
) -> None:
    packets = datagrams(content(100 * count - missing), 100, addresses)
    assert groups(packets) == [(0, count)]
    assert cut_again(packets) == packets


@families
def test_the_super_packet_is_what_the_kernel_expects_of_a_device(addresses: tuple[str, str]) -> None:
    """A whole packet, whose checksum field holds the sum of the pseudo-header and no more."""
    payload = content(1000)
    packets = stream(payload, 300, addresses, last_flags=ACK | PSH)
    (together,) = coalesce(packets, least=2)
    l4 = 20 if addresses is V4 else 40
    kind = Gso.TCPV4 if addresses is V4 else Gso.TCPV6
    frame = b"".join(together.pieces)
    assert VNET_HEADER.unpack(frame[:10]) == (NEEDS_CSUM, kind, l4 + 20, 300, l4, 16)
    assert frame[10:] == tcp_segment(payload, addresses, flags=ACK | PSH, partial_for=1020)
    packets = datagrams(payload, 300, addresses)
    (together,) = coalesce(packets, least=2)
    frame = b"".join(together.pieces)
    assert VNET_HEADER.unpack(frame[:10]) == (NEEDS_CSUM, Gso.UDP_L4, l4 + 8, 300, l4, 6)
    assert frame[10:] == udp_datagram(payload, addresses, partial=True)


@families
@pytest.mark.parametrize("make", [stream, datagrams])
def test_few_packets_are_not_worth_it(addresses: tuple[str, str], make: Callable[..., list[bytes]]) -> None:
    packets = make(content(100 * LEAST_FLOW), 100, addresses)
    assert coalesce(packets[:-1]) == []
    assert [together.count for together in coalesce(packets)] == [LEAST_FLOW]
    packets[3] = flip(packets[3], 80)
    assert coalesce(packets) == []


def test_each_protocol_can_be_left_out() -> None:
    packets = [*stream(content(500), 100), *datagrams(content(500), 100)]
    assert groups(packets) == [(0, 5), (5, 5)]
    assert groups(packets, tcp=False) == [(5, 5)]
    assert groups(packets, udp=False) == [(0, 5)]


def test_a_super_packet_ends_at_the_most_segments_and_at_the_most_bytes() -> None:
    packets = stream(content(100 * 150), 100)
    assert groups(packets) == [(0, MAX_SEGMENTS), (64, MAX_SEGMENTS), (128, 22)]
    packets = stream(content(1400 * 64), 1400)
    assert groups(packets) == [(0, 46), (46, 18)]
    for burst in (packets, stream(content(9000 * 20), 9000), datagrams(content(9000 * 20), 9000)):
        assert all(
            sum(map(len, together.pieces)) <= 10 + MAX_SUPER_PACKET for together in coalesce(burst, least=2)
        )
        assert cut_again(burst) == burst


def test_two_of_the_largest_packets_are_left_alone() -> None:
    packets = datagrams(content(65507 * 2), 65507)
    assert groups(packets) == []


@families
def test_flows_that_alternate_are_left_alone_and_in_order(addresses: tuple[str, str]) -> None:
    one = stream(content(1000), 100, addresses)
    two = stream(content(1000), 100, addresses, ports=(5001, 5003))
    mixed = [packet for pair in zip(one, two, strict=True) for packet in pair]
    assert groups(mixed) == []
    assert groups([*one, *two]) == [(0, 10), (10, 10)]


@families
def test_a_sequence_number_and_an_identification_that_wrap_begin_a_new_super_packet(
    addresses: tuple[str, str],
) -> None:
    packets = stream(content(2000), 100, addresses, sequence=2**32 - 450)
    assert groups(packets) == [(0, 5), (5, 15)]
    assert cut_again(packets) == packets
    packets = stream(content(2000), 100, addresses, sequence=2**32 - 500)  # ends at the last number of all
    assert groups(packets) == [(0, 5), (5, 15)]
    assert cut_again(packets) == packets
    packets = stream(content(2000), 100, identification=65530)
    assert groups(packets) == [(0, 6), (6, 14)]
    assert cut_again(packets) == packets


def test_an_ipv4_checksum_that_wraps_begins_a_new_super_packet() -> None:
    probe = tcp_segment(content(100), identification=0, ttl=64)
    base = struct.unpack_from("!H", probe, 10)[0]
    first = (base - 3) % 0xFFFF  # three more, then the checksum is zero
    packets = stream(content(1000), 100, identification=first)
    assert struct.unpack_from("!H", packets[3], 10)[0] == 0
    assert groups(packets) == [(0, 4), (4, 6)]
    assert cut_again(packets) == packets


def test_a_carry_into_the_neighbouring_field_is_not_taken_for_a_successor() -> None:
    """As a big number, one more than sequence number 2^32 - 1 and port 5002 is sequence number 0 and port 5003."""
    first = tcp_segment(content(100), sequence=2**32 - 100, identification=7)
    second = tcp_segment(content(100), sequence=0, ports=(5001, 5003), identification=8)
    assert groups([first, second]) == []
    first = tcp_segment(content(100), sequence=1000, identification=0xFFFF, fragment=0)
    second = tcp_segment(content(100), sequence=1100, identification=0, fragment=1)
    assert groups([first, second]) == []


def test_identifications_all_the_same_are_put_together_only_where_they_mean_nothing() -> None:
    """RFC 6864 §4.1: with DF. The kernel then counts them up when it cuts the super-packet again."""
    packets = stream(content(1000), 100, identification=0, identification_step=0)
    assert groups(packets) == [(0, 10)]
    counted = stream(content(1000), 100, identification=0)
    assert cut_again(packets) == counted
    packets = stream(content(1000), 100, identification=0, identification_step=0, fragment=0)
    assert groups(packets) == []
    packets = stream(content(1000), 100, identification_step=2)
    assert groups(packets) == []


def tcp(**changes: int | bytes) -> bytes:
    fields: dict[str, int | bytes] = {"sequence": 1100, "identification": 8}
    return tcp_segment(content(100, 2), **(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "follower",
    [
        tcp(sequence=1099),
        tcp(sequence=1101),
        tcp(sequence=1000),
        tcp(acknowledged=100),
        tcp(window=501),
        tcp(ttl=63),
        tcp(tos=1),
        tcp(tos=4),
        tcp(identification=9),
        tcp(identification=6),
        tcp(fragment=0),
        tcp(fragment=0x6000),
        tcp(fragment=0x4001),
        tcp(fragment=0xC000),
        tcp(options=b"\1\1\1\1"),
        tcp(flags=ACK | FIN),
        tcp(flags=ACK | CWR),
        tcp(flags=ACK | 0x40),
        tcp(flags=ACK | 0x20),
        tcp(flags=ACK | 0x04),
        tcp(flags=0),
        tcp(ports=(5001, 5003)),
        tcp(ports=(5000, 5002)),
        ip_packet(V4, 6, tcp()[20:], options=b"\1\1\1\0", identification=8),
        udp_datagram(content(112), identification=8),
        tcp_segment(content(100, 2), ("198.18.0.1", "198.18.0.3"), sequence=1100, identification=8),
        tcp_segment(content(100, 2), ("198.18.0.5", "198.18.0.2"), sequence=1100, identification=8),
        tcp_segment(content(101, 2), sequence=1100, identification=8),
        tcp_segment(b"", sequence=1100, identification=8),
        tcp() + b"x",
        tcp()[:-1],
    ],
)
def test_anything_that_differs_in_its_header_is_left_alone(follower: bytes) -> None:
    packets = [tcp_segment(content(100)), follower]
    assert groups(packets) == []
    assert groups([*packets, follower]) in ([], [(1, 2)])


def test_different_timestamps_are_not_put_together() -> None:
    first = tcp_segment(content(100), options=TIMESTAMPS)
    later = TIMESTAMPS[:7] + b"\xff" + TIMESTAMPS[8:]
    second = tcp_segment(content(100), options=later, sequence=1100, identification=8)
    assert groups([first, second]) == []


@pytest.mark.parametrize(
    "leader",
    [
        tcp_segment(content(100), flags=ACK | PSH),
        tcp_segment(content(100), flags=ACK | CWR),
        tcp_segment(content(100), flags=0x02),
        tcp_segment(content(100), fragment=0x2000),
        tcp_segment(content(100), fragment=1),
        ip_packet(V4, 6, tcp_segment(content(100))[20:], options=b"\1\1\1\0"),
        tcp_segment(b""),
    ],
)
def test_what_may_not_begin_a_super_packet_does_not(leader: bytes) -> None:
    assert groups([leader, tcp()]) == []
    assert groups([leader, tcp(), tcp(sequence=1200, identification=9)]) == [(1, 2)]


def test_psh_in_the_middle_ends_the_super_packet() -> None:
    packets = stream(content(1000), 100)
    packets[4] = tcp_segment(packets[4][40:], sequence=1400, identification=11, flags=ACK | PSH)
    assert groups(packets) == [(0, 5), (5, 5)]
    assert cut_again(packets) == packets


@pytest.mark.parametrize("make", [stream, datagrams])
def test_a_short_packet_ends_the_super_packet(make: Callable[..., list[bytes]]) -> None:
    packets = (
        [*make(content(450), 100), *make(content(450), 100, sequence=1450, identification=12)]
        if (make is stream)
        else [*make(content(450), 100), *make(content(450), 100, identification=12)]
    )
    assert groups(packets) == [(0, 5), (5, 5)]
    assert cut_again(packets) == packets


def flip(packet: bytes, offset: int, bit: int = 0) -> bytes:
    damaged = bytearray(packet)
    damaged[offset] ^= 1 << bit
    return bytes(damaged)


@families
@pytest.mark.parametrize("make", [stream, datagrams])
@pytest.mark.parametrize("size", [100, 101])
@pytest.mark.parametrize("which", range(7))
def test_a_corrupt_packet_is_left_alone_and_costs_its_neighbours_nothing(
    addresses: tuple[str, str], make: Callable[..., list[bytes]], size: int, which: int
) -> None:
    packets = make(content(size * 7 - 3), size, addresses)
    packets[which] = flip(packets[which], len(packets[which]) - 2)
    assert not is_valid(packets[which])
    first, second = (0, which), (which + 1, 6 - which)
    assert groups(packets) == [group for group in (first, second) if group[1] > 1]
    assert cut_again(packets) == packets


@families
@pytest.mark.parametrize("make", [stream, datagrams])
@given(offset=st.integers(0, 1000), bit=st.integers(0, 7), which=st.integers(0, 4), size=st.sampled_from([60, 61]))
def test_no_flipped_bit_anywhere_is_ever_laundered(
    addresses: tuple[str, str],
    make: Callable[..., list[bytes]],
    offset: int,
    bit: int,
    which: int,
    size: int,
) -> None:
    """It ends up alone, or among others as it was: a flip in a field no checksum covers splits the run."""
    packets = make(content(size * 5), size, addresses)
    packets[which] = flip(packets[which], offset % len(packets[which]), bit)
    assert cut_again(packets) == packets


def test_a_datagram_without_checksum_is_left_alone() -> None:
    packets = datagrams(content(300), 100)
    packets[1] = packets[1][:26] + b"\0\0" + packets[1][28:]
    assert groups(packets) == []


def test_a_checksum_the_kernel_would_write_with_the_other_zero_is_left_alone() -> None:
    # What a checksum is short of is the word that makes it zero.
    check = tcp_segment(content(98) + b"\0\0")[36:38]
    first = tcp_segment(content(98) + check)
    assert first[36:38] == b"\0\0"
    second = tcp()
    assert groups([first, second]) == [(0, 2)]
    other_zero = first[:36] + b"\xff\xff" + first[38:]
    assert is_valid(other_zero)
    assert groups([other_zero, second]) == []
    check = tcp_segment(content(100), identification=0)[10:12]
    ip_zero = tcp_segment(content(100), identification=int.from_bytes(check))
    assert ip_zero[10:12] == b"\0\0"
    assert groups([ip_zero[:10] + b"\xff\xff" + ip_zero[12:], second]) == []
    assert not checksum(ip_zero[:10] + b"\xff\xff" + ip_zero[12:20])


def test_lengths_at_odds_with_the_packet_are_left_alone() -> None:
    for packets in (stream(content(300), 100), stream(content(300), 100, V6), datagrams(content(300), 100, V6)):
        longer = [packet + b"\0\0" for packet in packets]
        shorter = [packet[:-2] for packet in packets]
        assert groups(longer) == groups(shorter) == []


@st.composite
def bursts(draw: st.DrawFn) -> list[bytes]:
    """Pieces of flows, cut, doubled, reordered and damaged."""
    packets: list[bytes] = []
    for _ in range(draw(st.integers(1, 4))):
        addresses = draw(st.sampled_from([V4, V6]))
        size = draw(st.integers(1, 40))
        payload = content(draw(st.integers(1, 300)), draw(st.integers(0, 3)))
        identification = draw(st.sampled_from([0, 5, 65530]))
        if draw(st.booleans()):
            sequence = draw(st.sampled_from([0, 1000, 2**32 - 70]))
            flags = draw(st.sampled_from([ACK, ACK | PSH, ACK | PSH | FIN]))
            options = draw(st.sampled_from([b"", TIMESTAMPS]))
            packets += stream(
                payload,
                size,
                addresses,
                sequence=sequence,
                identification=identification,
                last_flags=flags,
                options=options,
            )
        else:
            packets += datagrams(payload, size, addresses, identification=identification)
    for _ in range(draw(st.integers(0, 3))):
        index = draw(st.integers(0, len(packets) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                packets.insert(index, packets[index])
            case 1:
                packets.append(packets.pop(index))
            case 2:
                packets[index] = flip(packets[index], draw(st.integers(0, len(packets[index]) - 1)))
            case _:
                packets[index] = draw(st.binary(min_size=1, max_size=90))
    return packets


def without_identification(packet: bytes) -> bytes:
    """Return a packet without the identification of IPv4 with DF, which means nothing, and its checksum."""
    if len(packet) >= 20 and packet[0] >> 4 == 4 and packet[6] & 0x40:
        return packet[:4] + packet[6:10] + packet[12:]
    return packet


@given(bursts())
def test_whatever_is_put_together_is_cut_into_the_same_packets_again(packets: list[bytes]) -> None:
    again = cut_again(packets)
    assert list(map(without_identification, again)) == list(map(without_identification, packets))
    assert all(is_valid(new) for new, old in zip(again, packets, strict=True) if new != old)


@given(st.lists(st.binary(max_size=100), max_size=5))
def test_any_bytes_are_left_alone(packets: list[bytes]) -> None:
    assert cut_again(packets) == packets


@pytest.mark.parametrize(
    "packet", [tcp_segment(content(100)), udp_datagram(content(100)), b"", b"\x45", b"\x60" * 30]
)
def test_one_packet_and_none_make_nothing(packet: bytes) -> None:
    assert groups([]) == []
    assert groups([packet]) == []


def test_duplicates_of_a_segment_are_left_alone() -> None:
    assert groups([tcp()] * 3) == []


@families
@pytest.mark.parametrize("make", [stream, datagrams])
@pytest.mark.parametrize("count", [LEAST_FLOW, 46, MAX_SEGMENTS, MAX_SEGMENTS + 1, 150])
@pytest.mark.parametrize("damaged", [None, 0, 5, -1])
def test_a_run_that_is_a_flow_is_put_together_as_a_list_is(
    addresses: tuple[str, str], make: Callable[..., list[bytes]], count: int, damaged: int | None
) -> None:
    packets = make(content(100 * count), 100, addresses)
    if damaged is not None:
        packets[damaged] = flip(packets[damaged], 80)
    run = PacketRun.of(packets).part(0, count, is_flow=True)
    made, expected = coalesce_flow(run), coalesce(packets)
    summary = [(each.first, each.count, each.is_tcp, b"".join(each.pieces)) for each in made]
    assert summary == [(each.first, each.count, each.is_tcp, b"".join(each.pieces)) for each in expected]
    assert bool(made) == (damaged is None or count > LEAST_FLOW)
    assert coalesce_flow(run, tcp=make is datagrams, udp=make is stream) == []
