"""What the kernel puts into an error queue, as bytes; the queue itself is tested in tests/linux."""

from __future__ import annotations

import errno
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.linux.cmsg import IP_RECVERR, IPV6_RECVERR
from qtunnel.linux.icmp_errors import IcmpError, parse_error

REMOTE = ("198.18.0.1", 443)
REMOTE6 = ("2001:db8::1", 443, 0, 0)
ROUTER = struct.pack("=HH4s8x", socket.AF_INET, 0, bytes((198, 18, 9, 9)))
ROUTER6 = struct.pack("=HHI16sI", socket.AF_INET6, 0, 0, socket.inet_pton(socket.AF_INET6, "2001:db8::9"), 0)
LOCAL, ICMP, ICMP6 = 1, 2, 3


def item(code: int, origin: int, kind: int, icmp_code: int, info: int) -> tuple[int, int, bytes]:
    data = struct.pack("=IBBBxII", code, origin, kind, icmp_code, info, 0) + ROUTER
    return (socket.IPPROTO_IP, IP_RECVERR, data)


def item6(code: int, origin: int, kind: int, icmp_code: int, info: int) -> tuple[int, int, bytes]:
    data = struct.pack("=IBBBxII", code, origin, kind, icmp_code, info, 0) + ROUTER6
    return (socket.IPPROTO_IPV6, IPV6_RECVERR, data)


def parsed(item: tuple[int, int, bytes], remote: tuple[str, int] | tuple[str, int, int, int]) -> IcmpError:
    error = parse_error([(1, 2, b"other"), item], remote, b"quoted")
    assert error is not None
    return error


def test_fragmentation_needed_gives_the_mtu_the_router_and_the_quoted_bytes() -> None:
    assert parsed(item(errno.EMSGSIZE, ICMP, 3, 4, 1400), REMOTE) == IcmpError(
        remote=REMOTE,
        mtu=1400,
        errno=errno.EMSGSIZE,
        type=3,
        code=4,
        quoted=b"quoted",
        offender="198.18.9.9",
        is_local=False,
    )


def test_packet_too_big_of_ipv6_gives_the_mtu() -> None:
    error = parsed(item6(errno.EMSGSIZE, ICMP6, 2, 0, 1400), REMOTE6)
    assert (error.mtu, error.type, error.code, error.offender) == (1400, 2, 0, "2001:db8::9")


def test_local_error_carries_the_mtu_of_the_link_and_no_offender() -> None:
    error = parsed(item(errno.EMSGSIZE, LOCAL, 0, 0, 1400), REMOTE)
    assert (error.is_local, error.mtu, error.offender) == (True, 1400, None)


@pytest.mark.parametrize("mtu", [0, 67, 65536, 0xFFFFFFFF])
def test_mtu_no_ipv4_link_can_have_is_not_believed(mtu: int) -> None:
    assert parsed(item(errno.EMSGSIZE, ICMP, 3, 4, mtu), REMOTE).mtu is None


def test_mtu_under_1280_is_not_believed_for_ipv6() -> None:
    assert parsed(item6(errno.EMSGSIZE, ICMP6, 2, 0, 1279), REMOTE6).mtu is None
    assert parsed(item6(errno.EMSGSIZE, ICMP6, 2, 0, 1280), REMOTE6).mtu == 1280


def test_info_of_other_icmp_errors_is_no_mtu() -> None:
    assert parsed(item(errno.ECONNREFUSED, ICMP, 3, 3, 1400), REMOTE).mtu is None
    assert parsed(item6(errno.ECONNREFUSED, ICMP6, 1, 4, 1400), REMOTE6).mtu is None


def test_unset_offender_is_none() -> None:
    level, kind, data = item(errno.ECONNREFUSED, ICMP, 3, 3, 0)
    assert parsed((level, kind, data[:16] + bytes(16)), REMOTE).offender is None


@pytest.mark.parametrize(
    "bad",
    [
        item(errno.EMSGSIZE, ICMP6, 3, 4, 1400),
        item6(errno.EMSGSIZE, ICMP, 3, 4, 1400),
        item(errno.ENOMSG, 4, 0, 0, 0),
        (socket.IPPROTO_IP, IP_RECVERR, b"short"),
    ],
    ids=["icmpv6 about ipv4", "icmp about ipv6", "time stamp", "short"],
)
def test_what_is_no_icmp_error_is_none(bad: tuple[int, int, bytes]) -> None:
    assert parse_error([bad], REMOTE, b"") is None


def test_error_without_an_address_is_none() -> None:
    assert parse_error([item(errno.EMSGSIZE, ICMP, 3, 4, 1400)], None, b"") is None


@given(
    level=st.sampled_from([socket.IPPROTO_IP, socket.IPPROTO_IPV6]),
    kind=st.sampled_from([IP_RECVERR, IPV6_RECVERR]),
    data=st.binary(max_size=64),
)
def test_any_bytes_give_an_error_or_none(level: int, kind: int, data: bytes) -> None:
    error = parse_error([(level, kind, data)], REMOTE, data)
    assert error is None or error.mtu is None or 68 <= error.mtu <= 65535
