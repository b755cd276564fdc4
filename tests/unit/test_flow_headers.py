"""What a header says of the next one's of its flow."""

from __future__ import annotations

import pytest

from qtunnel.flow_headers import flow_layout, flow_reach, layout_of
from tests.unit.linux.packets import ACK, CWR, FIN, PSH, V4, V6, datagrams, ip_packet, stream, tcp_segment

families = pytest.mark.parametrize("addresses", [V4, V6], ids=["IPv4", "IPv6"])
TIMESTAMPS = b"\1\1\x08\x0a" + bytes(range(8))


@families
@pytest.mark.parametrize("options", [b"", TIMESTAMPS])
def test_one_addition_makes_the_next_header_of_a_flow(addresses: tuple[str, str], options: bytes) -> None:
    l4 = 20 if addresses is V4 else 40
    for packets, size in (
        (stream(bytes(1000), 100, addresses, options=options), l4 + 20 + len(options)),
        (datagrams(bytes(1000), 100, addresses), l4 + 8),
    ):
        layout = flow_layout(packets[0])
        assert layout is not None
        assert (layout.l4, layout.size) == (l4, size)
        counts_up, most = flow_reach(packets[0], packets[1], layout)
        assert counts_up is (addresses is V4)
        assert most > 1000
        header = int.from_bytes(packets[0][:size]) & layout.followed
        for packet in packets[1:]:
            header += layout.step(100, counts_up)
            assert int.from_bytes(packet[:size]) & layout.followed == header


def test_the_same_layout_is_the_same_object() -> None:
    first, second = stream(bytes(200), 100)
    assert flow_layout(first) is flow_layout(second) is layout_of(True, True, 20, 40)


@pytest.mark.parametrize("left", [0, 1, 5])
def test_a_flow_ends_before_a_counted_field_overflows(left: int) -> None:
    packets = stream(bytes(300), 100, sequence=2**32 - 1 - 100 * left, identification=9)
    layout = flow_layout(packets[0])
    assert layout is not None
    assert flow_reach(packets[0], packets[1], layout)[1] == left + 1
    packets = stream(bytes(300), 100, identification=0xFFFF - left)
    layout = flow_layout(packets[0])
    assert layout is not None
    assert flow_reach(packets[0], packets[1], layout)[1] <= left + 1


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"\x45",
        bytes(100),
        tcp_segment(b""),
        tcp_segment(bytes(9), flags=ACK | PSH),
        tcp_segment(bytes(9), flags=ACK | FIN),
        tcp_segment(bytes(9), flags=ACK | CWR),
        tcp_segment(bytes(9), fragment=0x2000),
        tcp_segment(bytes(9), fragment=1),
        tcp_segment(bytes(9)) + b"x",
        tcp_segment(bytes(9))[:-1],
        ip_packet(V4, 6, tcp_segment(bytes(9))[20:], options=b"\1\1\1\0"),
        ip_packet(V4, 1, bytes(60)),
        ip_packet(V6, 58, bytes(60)),
        datagrams(bytes(9), 9)[0][:10] + b"\0\1" + datagrams(bytes(9), 9)[0][12:],
    ],
)
def test_a_packet_that_cannot_be_followed_has_no_layout(packet: bytes) -> None:
    assert flow_layout(packet) is None
