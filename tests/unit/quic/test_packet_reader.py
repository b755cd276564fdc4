"""Bursts of the peer's packets, in runs and one by one: what is delivered, acknowledged, refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from qtunnel.burst import Address
from qtunnel.packet_run import flatten
from qtunnel.quic.packet_reader import MIN_RUN
from qtunnel.quic.run_opening import OpenedRun
from tests.sim.quic_pair import QuicPair
from tests.unit.quic.planes import plane_of

COUNT = 2 * MIN_RUN


class Ends:
    """The planes of a client, which seals here, and of its server, which reads."""

    def __init__(self) -> None:
        pair = QuicPair()
        pair.open_tunnel()
        pair.run(1)
        self.now = pair.now
        self.sender, self.plane = (
            plane_of(connection) for connection in (pair.client, pair.server_connection) if connection is not None
        )
        self.address: Address = self.plane.path.network.addr

    def seal(self, payloads: Sequence[bytes], *, skip: int = 0) -> list[bytes]:
        """Seal packets with the next numbers, after skip of them."""
        path = self.sender.path
        path.next_number += skip
        packets = self.sender.keys.send.seal(payloads, path.next_number, self.sender.core.peer_cid)
        path.next_number += len(payloads)
        return packets

    def receive(self, packets: Sequence[bytes], ecn: int = 0) -> int:
        return self.plane.reader.receive(packets, self.address, self.now, ecn)

    def taken(self) -> list[bytes]:
        return flatten(self.plane.frames.take_datagrams())


def contents(count: int = COUNT) -> list[bytes]:
    return [b"\x00\x00packet %4d" % number for number in range(count)]


def frames(count: int = COUNT) -> list[bytes]:
    return [b"\x30" + each for each in contents(count)]


@pytest.fixture
def ends() -> Ends:
    return Ends()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the length of each run that is opened at once."""
    found: list[int] = []
    reads = OpenedRun.stretches

    def spy(opened: OpenedRun) -> list[tuple[int, int]]:
        found.append(len(opened.numbers))
        return reads(opened)

    monkeypatch.setattr(OpenedRun, "stretches", spy)
    return found


def test_a_run_is_opened_at_once_and_a_shorter_last_packet_by_itself(ends: Ends, runs: list[int]) -> None:
    assert ends.receive(ends.seal([*frames(), b"\x30\x00\x00last"])) == COUNT + 1
    assert runs == [COUNT]
    assert ends.taken() == [*contents(), b"\x00\x00last"]
    assert ends.plane.path.received.take_ranges()[0][1] == ends.sender.path.next_number - 1


def test_a_few_packets_are_opened_one_by_one(ends: Ends, runs: list[int]) -> None:
    assert ends.receive(ends.seal(frames(MIN_RUN - 1))) == MIN_RUN - 1
    assert runs == []
    assert ends.taken() == contents(MIN_RUN - 1)


@pytest.mark.parametrize("at", [0, 5, COUNT - 1])
def test_one_packet_that_cannot_be_opened_costs_no_other_of_a_run(ends: Ends, runs: list[int], at: int) -> None:
    packets = ends.seal(frames())
    packets[at] = packets[at][:-1] + bytes((packets[at][-1] ^ 1,))
    assert ends.receive(packets) == COUNT - 1
    assert runs == []
    assert ends.taken() == [each for number, each in enumerate(contents()) if number != at]
    assert ends.plane.keys.receive.failed == 1


def test_a_run_again_is_delivered_once(ends: Ends) -> None:
    packets = ends.seal(frames())
    assert [ends.receive(packets), ends.receive(packets)] == [COUNT, 0]
    assert ends.taken() == contents()


def test_packets_that_were_late_are_delivered_in_a_run_of_their_own(ends: Ends, runs: list[int]) -> None:
    first, second = ends.seal(frames()), ends.seal(frames())
    assert [ends.receive(second), ends.receive(first)] == [COUNT, COUNT]
    assert runs == [COUNT]
    assert ends.taken() == contents() + contents()
    ranges = ends.plane.path.received.take_ranges()
    assert ranges[0][1] - ranges[0][0] >= 2 * COUNT - 1


def test_a_gap_asks_for_an_ack_at_once_and_stays_a_gap(ends: Ends, runs: list[int]) -> None:
    packets = ends.seal(frames())
    del packets[7]
    ends.receive(packets, ecn=3)
    assert runs == [COUNT - 1]
    received = ends.plane.path.received
    assert received.ack_at == ends.now
    assert received.ecn_counts == [0, 0, COUNT - 1]
    last = ends.sender.path.next_number - 1
    assert received.take_ranges()[0] == (last - (COUNT - 9), last)


def test_other_frames_within_a_run_are_read_in_order(ends: Ends, runs: list[int]) -> None:
    payloads = frames()
    size = len(payloads[0])
    payloads[3] = b"\x01" + bytes(size - 1)
    payloads[4] = bytes(size)  # padding alone asks for no ACK
    length = b"\x31\x05\x00\x00abc"
    payloads[6] = length + bytes(size - len(length))
    ends.receive(ends.seal(payloads))
    assert runs == [COUNT]
    expected: list[bytes] = contents()
    expected[6] = b"\x00\x00abc"
    del expected[3:5]
    assert ends.taken() == expected


@pytest.mark.parametrize("count", [3, COUNT])
def test_what_follows_the_reason_to_close_is_not_read(ends: Ends, count: int) -> None:
    payloads = frames(count)
    payloads[1] = b"\x02\x80\xff\xff\xff\x00\x00\x00".ljust(len(payloads[0]), b"\x00")
    ends.receive(ends.seal(payloads))
    assert ends.taken() == contents(count)[:1]
    assert ends.plane.core.has_end


@pytest.mark.parametrize("count", [3, COUNT])
def test_reserved_bits_close_the_connection(ends: Ends, count: int) -> None:
    keys = ends.sender.keys.send
    # The header is sealed with the bits set, as a peer with a fault would do it.
    phase = keys.key_phase
    keys.key_phase = phase | 0x18 >> 2
    packets = ends.seal(frames(count))
    keys.key_phase = phase
    ends.receive(packets)
    assert ends.taken() == []
    assert ends.plane.core.has_end


@pytest.mark.parametrize("count", [3, COUNT])
def test_a_datagram_larger_than_we_take_closes_the_connection(ends: Ends, count: int) -> None:
    ends.plane.frames._largest_frame = 10
    ends.receive(ends.seal(frames(count)))
    assert ends.taken()[1:] == []
    assert ends.plane.core.has_end


def test_a_key_update_within_a_burst_loses_nothing(ends: Ends, runs: list[int]) -> None:
    before = ends.seal(frames())
    ends.sender.keys.update(ends.sender.path.next_number, ends.now, 0.1)
    assert ends.receive(before + ends.seal(frames())) == 2 * COUNT
    assert ends.taken() == contents() + contents()
    assert ends.plane.keys.updates == 1
    assert ends.receive(ends.seal(frames())) == COUNT
    assert runs == [COUNT]


def test_a_run_from_another_address_moves_the_peer_there(ends: Ends, runs: list[int]) -> None:
    packets = ends.seal(frames())
    assert ends.plane.reader.receive(packets, ("203.0.113.9", 4), ends.now) == COUNT
    assert runs == []
    assert ends.taken() == contents()
    assert ends.plane.path.network.addr == ("203.0.113.9", 4)


def test_datagrams_too_short_to_sample_are_no_packets(ends: Ends) -> None:
    packets = ends.seal(frames())
    assert ends.receive([b"@short", *packets]) == COUNT
    assert ends.receive([b"@short"]) == 0
