"""What is cut out of a super-packet: the segments a host without offloads would have sent, to the byte."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.flow_runs import flow_runs
from qtunnel.linux.segmentation import Segmenter, complete_checksums
from qtunnel.linux.vnet_hdr import GSO_ECN, MAX_SEGMENTS, NEEDS_CSUM, VNET_HEADER, Gso
from qtunnel.packet_run import PacketRun, flatten
from tests.unit.linux.packets import (
    ACK,
    CWR,
    FIN,
    PSH,
    V4,
    V6,
    datagrams,
    ip_packet,
    is_valid,
    stream,
    tcp_segment,
    udp_datagram,
)

TIMESTAMPS = b"\1\1\x08\x0a" + bytes(range(8))
families = pytest.mark.parametrize("addresses", [V4, V6], ids=["IPv4", "IPv6"])
COUNTS = [1, 2, 3, 4, 5, 8, 46, MAX_SEGMENTS, MAX_SEGMENTS + 1, 3 * MAX_SEGMENTS + 7]


def split(frame: bytes) -> list[bytes]:
    groups = Segmenter().split(memoryview(bytearray(frame)))
    assert all(groups)  # none is empty
    return flatten(groups)


def tcp_frame(payload: bytes, size: int, addresses: tuple[str, str] = V4, **fields: int | bytes) -> bytes:
    """Return what the kernel hands over: a segment as long as it likes, its checksum left to us."""
    length = 20 + len(fields.get("options", b"")) + len(payload)  # type: ignore[arg-type]
    packet = tcp_segment(payload, addresses, partial_for=length, **fields)  # type: ignore[arg-type]
    kind = Gso.TCPV4 if addresses is V4 else Gso.TCPV6
    l4 = 20 if addresses is V4 else 40
    return VNET_HEADER.pack(NEEDS_CSUM, kind, 0, size, l4, 16) + packet


def udp_frame(payload: bytes, size: int, addresses: tuple[str, str] = V4, **fields: int | bytes) -> bytes:
    packet = udp_datagram(payload, addresses, partial=True, **fields)
    return VNET_HEADER.pack(NEEDS_CSUM, Gso.UDP_L4, 0, size, 20 if addresses is V4 else 40, 6) + packet


def content(size: int, seed: int = 1) -> bytes:
    return bytes((index * 31 + (index >> 8) * seed) & 0xFF for index in range(size))


@families
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("missing", [0, 1, 2, 99])
def test_a_tcp_super_packet_is_cut_into_the_segments_of_a_plain_sender(
    addresses: tuple[str, str], count: int, missing: int
) -> None:
    payload = content(100 * count - missing)
    fields = {"options": TIMESTAMPS, "sequence": 0xFFFFFF00, "identification": 65533}
    assert split(tcp_frame(payload, 100, addresses, **fields)) == stream(payload, 100, addresses, **fields)


@families
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("missing", [0, 1, 2, 99])
def test_a_udp_super_packet_is_cut_into_datagrams(addresses: tuple[str, str], count: int, missing: int) -> None:
    payload = content(100 * count - missing)
    assert split(udp_frame(payload, 100, addresses)) == datagrams(payload, 100, addresses)


@families
@given(
    payload=st.binary(min_size=1, max_size=3000),
    size=st.integers(1, 1500),
    sequence=st.integers(0, 0xFFFFFFFF),
    identification=st.integers(0, 0xFFFF),
    doff=st.integers(0, 10),
    tos=st.integers(0, 255),
    fragment=st.sampled_from([0, 0x4000]),
)
def test_whatever_the_fields_every_segment_is_the_plain_senders(
    addresses: tuple[str, str],
    payload: bytes,
    size: int,
    sequence: int,
    identification: int,
    doff: int,
    tos: int,
    fragment: int,
) -> None:
    fields = {
        "sequence": sequence,
        "identification": identification,
        "options": content(4 * doff),
        "tos": tos,
        "fragment": fragment,
    }
    assert split(tcp_frame(payload, size, addresses, **fields)) == stream(payload, size, addresses, **fields)


@families
@given(words=st.lists(st.sampled_from([0, 0xFFFF, 1, 0xFFFE]), min_size=2, max_size=40), size=st.integers(2, 9))
def test_the_two_zeros_of_a_sum_are_told_apart_as_the_kernel_does(
    addresses: tuple[str, str], words: list[int], size: int
) -> None:
    """TCP sends 0 for a sum of zero, UDP 0xFFFF. The window field brings the sum anywhere near it."""
    payload = struct.pack(f"!{len(words)}H", *words)
    for window in range(0xFFF0, 0x10000):
        frame = tcp_frame(payload, size, addresses, window=window, ports=(0, 0), acknowledged=0)
        assert split(frame) == stream(payload, size, addresses, window=window, ports=(0, 0), acknowledged=0)
    for port in range(0xFFF0, 0x10000):
        frame = udp_frame(payload, size, addresses, ports=(port, 0))
        assert split(frame) == datagrams(payload, size, addresses, ports=(port, 0))


@pytest.mark.parametrize("count", [1, 2, 4, 20, 64, 65, 70])
@pytest.mark.parametrize("missing", [0, 49])
def test_fin_and_psh_stay_with_the_last_segment_and_cwr_with_the_first(count: int, missing: int) -> None:
    frame = tcp_frame(content(50 * count - missing), 50, flags=ACK | PSH | FIN | CWR)
    frame = frame[:1] + bytes([Gso.TCPV4 | GSO_ECN]) + frame[2:]
    packets = split(frame)
    flags = [packet[33] for packet in packets]
    expected = [ACK] * count
    expected[0] |= CWR
    expected[-1] |= PSH | FIN
    assert flags == expected
    assert all(map(is_valid, packets))


def test_one_segmenter_cuts_frames_of_changing_geometry_and_leaves_nothing_of_one_in_the_next() -> None:
    segmenter = Segmenter()
    for size in (*range(90, 130), *range(129, 89, -1)):
        for missing in (0, 1, 60):
            payload = content(size * 9 - missing, size)
            for addresses in (V4, V6):
                frame = memoryview(bytearray(tcp_frame(payload, size, addresses)))
                assert flatten(segmenter.split(frame)) == stream(payload, size, addresses)
                frame = memoryview(bytearray(udp_frame(payload, size, addresses)))
                assert flatten(segmenter.split(frame)) == datagrams(payload, size, addresses)


@pytest.mark.parametrize("count", [2, 30])
def test_ipv6_extension_headers_go_with_every_segment(count: int) -> None:
    payload = content(100 * count)
    extension = bytes([6, 0, 1, 4, 0, 0, 0, 0])  # hop-by-hop options: padding; TCP follows
    whole = tcp_segment(payload, V6, partial_for=20 + len(payload))
    packet = ip_packet(V6, 0, whole[40:], options=extension)
    frame = VNET_HEADER.pack(NEEDS_CSUM, Gso.TCPV6, 0, 100, 48, 16) + packet
    expected = [ip_packet(V6, 0, each[40:], options=extension) for each in stream(payload, 100, V6)]
    assert split(frame) == expected


@pytest.mark.parametrize("count", [2, 30])
def test_ipv4_options_go_with_every_segment(count: int) -> None:
    payload = content(100 * count)
    packet = tcp_segment(payload, partial_for=20 + len(payload), options=b"")
    options = b"\1\1\1\0"
    whole = ip_packet(V4, 6, packet[20:], options=options)
    frame = VNET_HEADER.pack(NEEDS_CSUM, Gso.TCPV4, 0, 100, 24, 16) + whole
    expected = [
        ip_packet(V4, 6, each[20:], options=options, identification=7 + index)
        for index, each in enumerate(stream(payload, 100))
    ]
    assert split(frame) == expected


@families
@pytest.mark.parametrize("size", [1, 2, 50, 511, 512, 513, 1300, 1301])
@pytest.mark.parametrize("count", [1, 2, 7, 8, 20])
def test_checksums_left_to_the_device_are_completed(addresses: tuple[str, str], size: int, count: int) -> None:
    l4 = 20 if addresses is V4 else 40
    payloads = [content(size, seed) for seed in range(count)]
    partial = [udp_datagram(payload, addresses, partial=True) for payload in payloads]
    assert complete_checksums(partial, l4, 6) == [udp_datagram(payload, addresses) for payload in payloads]
    partial = [tcp_segment(payload, addresses, partial_for=20 + size) for payload in payloads]
    assert complete_checksums(partial, l4, 16) == [tcp_segment(payload, addresses) for payload in payloads]


@pytest.mark.parametrize("count", [1, 30])
def test_a_completed_checksum_of_zero_is_sent_as_the_other_zero(count: int) -> None:
    short_of = udp_datagram(bytes(4))[26:28]
    packets = [udp_datagram(bytes(2) + short_of, partial=True)] * count
    assert {packet[26:28] for packet in complete_checksums(packets, 20, 6)} == {b"\xff\xff"}


@given(st.binary(min_size=1, max_size=60), st.integers(0, 65535), st.integers(0, 65535), st.integers(1, 12))
def test_completing_checksums_anywhere_is_no_error_and_changes_no_size(
    packet: bytes, start: int, offset: int, count: int
) -> None:
    for at in (start, start % 64):
        complete = complete_checksums([packet] * count, at, offset % 64)
        assert {len(each) for each in complete} in (set(), {len(packet)})
        assert len(complete) in (0, count)
        if at + offset % 64 + 2 > len(packet):
            assert complete == []


@pytest.mark.parametrize("start", [20, 21])
@pytest.mark.parametrize("offset", [6, 7])
def test_many_checksums_are_completed_as_one_is(start: int, offset: int) -> None:
    packets = [content(77, seed) for seed in range(20)]
    together = complete_checksums(packets, start, offset)
    assert together == [complete_checksums([packet], start, offset)[0] for packet in packets]


@given(st.binary(max_size=200))
def test_any_bytes_are_cut_into_packets_or_dropped_but_never_an_error(frame: bytes) -> None:
    split(frame)


@given(
    flags=st.integers(0, 3),
    kind=st.sampled_from([0, 1, 3, 4, 5, 0x80, 0x81, 0x84, 0x85, 255]),
    size=st.integers(0, 70),
    l4=st.integers(0, 70),
    check=st.sampled_from([6, 16, 0, 1, 65535]),
    packet=st.sampled_from(
        [tcp_segment(bytes(60)), tcp_segment(bytes(9), V6), udp_datagram(bytes(60)), udp_datagram(bytes(60), V6)]
    ),
    cut=st.integers(0, 130),
    flip=st.integers(0, 59),
    value=st.integers(0, 255),
)
def test_a_header_at_odds_with_its_packet_is_no_error_and_loses_no_length(
    flags: int, kind: int, size: int, l4: int, check: int, packet: bytes, cut: int, flip: int, value: int
) -> None:
    damaged = bytearray(VNET_HEADER.pack(flags, kind, 0, size, l4, check) + packet[:cut])
    if flip + 10 < len(damaged):
        damaged[flip + 10] = value
    for each in flatten(Segmenter().split(memoryview(damaged))):
        assert 0 < len(each) <= max(cut, 1)


@pytest.mark.parametrize(
    "header",
    [
        VNET_HEADER.pack(NEEDS_CSUM, Gso.TCPV4, 0, 0, 20, 16),
        VNET_HEADER.pack(0, Gso.TCPV4, 0, 100, 20, 16),
        VNET_HEADER.pack(NEEDS_CSUM, 3, 0, 100, 20, 6),
        VNET_HEADER.pack(NEEDS_CSUM, Gso.TCPV6, 0, 100, 20, 16),
        VNET_HEADER.pack(NEEDS_CSUM, Gso.UDP_L4, 0, 100, 20, 16),
        VNET_HEADER.pack(NEEDS_CSUM, Gso.TCPV4, 0, 100, 24, 16),
        VNET_HEADER.pack(NEEDS_CSUM, Gso.TCPV4, 0, 100, 65535, 16),
        VNET_HEADER.pack(NEEDS_CSUM, 0, 0, 100, 20, 16),
        b"",
    ],
)
def test_a_frame_whose_header_makes_no_sense_gives_no_packet(header: bytes) -> None:
    assert split(header + tcp_segment(content(500), partial_for=520)) == []


@families
@pytest.mark.parametrize("make", [tcp_frame, udp_frame])
def test_many_segments_are_runs_of_one_flow_and_the_short_last_one_is_alone(
    addresses: tuple[str, str], make: Callable[..., bytes]
) -> None:
    frame = make(content(100 * 20 - 1), 100, addresses)
    groups = Segmenter().split(memoryview(bytearray(frame)))
    assert [len(group) for group in groups] == [19, 1]
    first = groups[0]
    assert isinstance(first, PacketRun)
    assert first.is_flow
    (found,) = flow_runs(PacketRun.of(list(first)))
    assert isinstance(found, PacketRun)
    assert found.is_flow
