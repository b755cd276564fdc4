"""Runs of equal packets opened at once, against PacketKeys.open and aioquic's own sealing."""

import itertools
import random
from collections.abc import Sequence

import pytest
from aioquic.quic.crypto import CryptoContext
from aioquic.quic.packet import QuicProtocolVersion
from aioquic.tls import CipherSuite
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.packet_run import PacketRun
from qtunnel.quic.packet_protection import PacketKeys
from qtunnel.quic.run_opening import OpenedRun, RunOpener, equal_runs

SUITES = [
    CipherSuite.AES_128_GCM_SHA256,
    CipherSuite.AES_256_GCM_SHA384,
    CipherSuite.CHACHA20_POLY1305_SHA256,
]
CID = b"\x01\x02\x03\x04"


def keys(suite: CipherSuite = SUITES[0]) -> PacketKeys:
    return PacketKeys(suite, bytes(range(48 if suite is CipherSuite.AES_256_GCM_SHA384 else 32)))


def open_run(keys: PacketKeys, packets: Sequence[bytes], expected: int, path_id: int = 0) -> OpenedRun | None:
    return RunOpener(len(CID)).open(keys, PacketRun.of(packets), expected, path_id)


def payloads(count: int, size: int = 50) -> list[bytes]:
    rng = random.Random(count)
    return [rng.randbytes(size) for _ in range(count)]


def sealed(count: int, first: int, **kwargs: int) -> list[bytes]:
    return keys().seal(payloads(count), first, CID, **kwargs)


def sealed_by_aioquic(contents: list[bytes], numbers: list[int], width: int) -> list[bytes]:
    """Seal with packet numbers of any width."""
    context = CryptoContext()
    context.setup(cipher_suite=SUITES[0], secret=bytes(range(32)), version=QuicProtocolVersion.VERSION_1)
    return [
        context.encrypt_packet(
            bytes((0x40 | width - 1,)) + CID + (number & (1 << 8 * width) - 1).to_bytes(width), content, number
        )
        for content, number in zip(contents, numbers, strict=True)
    ]


@pytest.mark.parametrize("suite", SUITES)
@given(count=st.integers(1, 70), size=st.integers(2, 1400), first=st.integers(0, 1 << 40), data=st.data())
def test_what_was_sealed_is_opened(
    suite: CipherSuite, count: int, size: int, first: int, data: st.DataObject
) -> None:
    contents = payloads(count, size)
    path_id = data.draw(st.sampled_from([0, 3]))
    behind = data.draw(st.integers(0, min(first, 2**15 - count)))
    packets = keys(suite).seal(contents, first, CID, path_id=path_id, spin=1)
    opened = open_run(keys(suite), packets, first - behind, path_id)
    assert opened is not None
    assert opened.first_byte == 0x61
    assert opened.numbers.tolist() == list(range(first, first + count))
    assert list(opened.payloads) == contents


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_packet_numbers_of_every_width(width: int) -> None:
    numbers = list(range(1000, 1012))
    contents = payloads(12)
    opened = open_run(keys(), sealed_by_aioquic(contents, numbers, width), 1000)
    assert opened is not None
    assert (opened.numbers.tolist(), list(opened.payloads)) == (numbers, contents)
    assert opened.stretches() == [(1000, 12)]


def test_gaps_are_kept() -> None:
    packets = sealed(20, 65_530)
    del packets[3:5], packets[10]
    opened = open_run(keys(), packets, 65_530)
    assert opened is not None
    assert opened.stretches() == [(65_530, 3), (65_535, 7), (65_543, 7)]
    assert list(opened.payloads) == [each for at, each in enumerate(payloads(20)) if at not in (3, 4, 12)]


def disorders() -> dict[str, list[bytes]]:
    """Return bursts that are no plain runs, from packets 100 to 119."""
    packets = sealed(20, 100)
    swapped = [*packets[:5], packets[6], packets[5], *packets[7:]]
    wide = sealed_by_aioquic([payloads(20)[7][:-1]], [107], 3)
    damaged = bytearray(packets[9])
    damaged[-1] ^= 1
    head = bytearray(packets[9])
    head[2] ^= 1  # in the connection id, which the tag covers
    return {
        "reordered": swapped,
        "duplicate": [*packets[:6], packets[5], *packets[6:]],
        "other width": [*packets[:7], *wide, *packets[8:]],
        "other spin": [*packets[:7], *keys().seal(payloads(20)[7:8], 107, CID, spin=1), *packets[8:]],
        "wrong tag": [*packets[:9], bytes(damaged), *packets[10:]],
        "wrong head": [*packets[:9], bytes(head), *packets[10:]],
        "other phase": keys().update().seal(payloads(20), 100, CID),
        "other keys": PacketKeys(SUITES[0], bytes(32)).seal(payloads(20), 100, CID),
    }


@pytest.mark.parametrize("name", disorders())
def test_what_is_no_plain_run_is_left_to_others(name: str) -> None:
    each = keys()
    assert open_run(each, sealed(20, 100), 100) is not None
    assert open_run(each, disorders()[name], 100) is None
    assert each.failed == 0


@pytest.mark.parametrize("expected", [101, 119, 120, 30_000])
def test_packets_that_may_have_come_before_are_left_to_others(expected: int) -> None:
    assert open_run(keys(), sealed(20, 100), expected) is None


@given(st.lists(st.binary(min_size=25, max_size=27), min_size=1, max_size=30))
def test_bytes_of_strangers_raise_nothing(datagrams: list[bytes]) -> None:
    runs = list(equal_runs(datagrams))
    assert [data for run in runs for data in run] == datagrams
    assert all(len(set(map(len, run))) == 1 for run in runs)
    assert all(len(one[0]) != len(following[0]) for one, following in itertools.pairwise(runs))
    for run in runs:
        assert open_run(keys(), run, 0) is None


def test_runs_of_one_size_are_parted_at_the_most_that_are_opened_at_once() -> None:
    whole = PacketRun(bytes(30 * 400), 30, 400)
    assert [len(run) for run in equal_runs(whole)] == [192, 192, 16]
    assert [len(run) for run in equal_runs(list(whole))] == [192, 192, 16]


def test_what_was_opened_before_is_not_changed_by_the_next() -> None:
    """Rows are used again, by every connection."""
    contents = payloads(20)
    opened = open_run(keys(), keys().seal(contents, 0, CID), 0)
    again = open_run(keys(), keys().seal(payloads(20)[::-1], 20, CID), 20)
    assert opened is not None
    assert again is not None
    assert list(opened.payloads) == contents
    assert list(again.payloads) == contents[::-1]
