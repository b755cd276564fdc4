"""A UDP socket against a scripted kernel: injected errors, so that each fallback is taken on purpose."""

from __future__ import annotations

import errno
import logging
import os
import socket
import struct
from collections import deque
from typing import Any, cast

import pytest

from qtunnel.burst import SendResult, Transmit
from qtunnel.linux import cmsg
from qtunnel.linux.udp import UdpSocket
from qtunnel.linux.udp_options import OpenedSocket
from qtunnel.packet_run import PacketRun

REMOTE = ("198.18.0.2", 443)
OTHER = ("198.18.0.3", 443)
GRO = (cmsg.SOL_UDP, cmsg.UDP_GRO)


class FakeKernel:
    """Stands for the socket. send_errors: what each coming sendmsg says, 0 for success and when it has run out."""

    family = socket.AF_INET

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, list[cmsg.Ancillary], Any]] = []
        self.send_errors: deque[int] = deque()
        self.inbox: deque[tuple[bytes, list[cmsg.Ancillary], int, Any] | int] = deque()
        self.error_queue: deque[tuple[bytes, list[cmsg.Ancillary], Any]] = deque()
        self.refuses_segmenting = 0
        self.options: list[tuple[int, ...]] = []
        self.link_payload = 65507

    def sendmsg(self, buffers: Any, ancillary: Any, flags: int, address: Any) -> int:
        data = b"".join(bytes(buffer) for buffer in buffers)
        code = self.send_errors.popleft() if self.send_errors else 0
        segments = [struct.unpack("=H", item[2])[0] for item in ancillary if item[1] == cmsg.UDP_SEGMENT]
        if segments and self.refuses_segmenting:
            code = code or self.refuses_segmenting
        if (segments[0] if segments else len(data)) > self.link_payload:
            code = code or errno.EMSGSIZE
        if code:
            raise OSError(code, "injected")
        self.sent.append((data, list(ancillary), address))
        return len(data)

    def recvmsg_into(self, buffers: Any, size: int) -> Any:
        if not self.inbox:
            raise BlockingIOError(errno.EAGAIN, "empty")
        item = self.inbox.popleft()
        if isinstance(item, int):
            raise OSError(item, "injected")
        data, ancillary, flags, address = item
        buffers[0][: len(data)] = data
        return len(data), ancillary, flags, address

    def recvmsg(self, size: int, ancillary_size: int, flags: int) -> Any:
        assert flags == socket.MSG_ERRQUEUE
        if not self.error_queue:
            raise BlockingIOError(errno.EAGAIN, "empty")
        data, ancillary, address = self.error_queue.popleft()
        return data, ancillary, socket.MSG_ERRQUEUE, address

    def getsockopt(self, *_: int) -> bytes:
        raise OSError(errno.ENOPROTOOPT, "an old kernel")

    def setsockopt(self, *option: int) -> None:
        self.options.append(option)


@pytest.fixture
def kernel() -> FakeKernel:
    return FakeKernel()


@pytest.fixture
def udp(kernel: FakeKernel) -> UdpSocket:
    opened = OpenedSocket(cast("socket.socket", kernel), True, True, 1 << 22, 1 << 22)
    return UdpSocket(opened, path_id=7)


def batch(count: int = 4, size: int = 100) -> Transmit:
    data = b"".join(bytes([number]) * size for number in range(count - 1)) + b"end"
    return Transmit(data, REMOTE, segment_size=size)


def too_big_error(mtu: int = 1300) -> tuple[bytes, list[cmsg.Ancillary], Any]:
    data = struct.pack("=IBBBxII", errno.EMSGSIZE, 2, 3, 4, mtu, 0) + bytes(16)
    return (b"quoted", [(socket.IPPROTO_IP, cmsg.IP_RECVERR, data)], OTHER)


class TestSending:
    def test_one_datagram_goes_out_with_no_ancillary_data(self, udp: UdpSocket, kernel: FakeKernel) -> None:
        assert udp.send(Transmit(b"hello", REMOTE)) is SendResult.SENT
        assert kernel.sent == [(b"hello", [], REMOTE)]

    def test_local_address_becomes_packet_info(self, udp: UdpSocket, kernel: FakeKernel) -> None:
        udp.send(Transmit(b"hello", REMOTE, local="198.18.0.9"))
        assert kernel.sent[0][1] == [cmsg.packet_info(socket.AF_INET, bytes((198, 18, 0, 9)))]

    @pytest.mark.parametrize("local", ["2001:db8::1", "nonsense", "a\0b"])
    def test_local_address_of_another_family_fails_without_an_exception(
        self, udp: UdpSocket, kernel: FakeKernel, local: str
    ) -> None:
        assert udp.send(Transmit(b"hello", REMOTE, local=local)) is SendResult.FAILED
        assert kernel.sent == []

    def test_a_batch_is_one_call_with_its_segment_size(self, udp: UdpSocket, kernel: FakeKernel) -> None:
        transmit = batch(count=4)
        assert udp.send(transmit) is SendResult.SENT
        assert kernel.sent == [(transmit.data, [cmsg.segment_size(100)], REMOTE)]
        assert (udp.counters.send_calls, udp.counters.datagrams_sent) == (1, 4)

    def test_a_batch_of_one_is_sent_plainly(self, udp: UdpSocket, kernel: FakeKernel) -> None:
        udp.send(Transmit(b"x" * 100, REMOTE, segment_size=100))
        assert kernel.sent == [(b"x" * 100, [], REMOTE)]

    @pytest.mark.parametrize("code", [errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EMSGSIZE])
    def test_pending_error_of_an_earlier_datagram_is_handled_and_the_send_repeated(
        self, udp: UdpSocket, kernel: FakeKernel, code: int
    ) -> None:
        kernel.send_errors.append(code)
        kernel.error_queue.append(too_big_error())
        assert udp.send(Transmit(b"hello", REMOTE)) is SendResult.SENT
        assert [data for data, _, _ in kernel.sent] == [b"hello"]
        assert [error.mtu for error in udp.read_errors()] == [1300]
        assert not udp.counters.send_errors

    @pytest.mark.parametrize(
        ("code", "result"),
        [
            (errno.EMSGSIZE, SendResult.TOO_BIG),
            (errno.ECONNREFUSED, SendResult.UNREACHABLE),
            (errno.ENETUNREACH, SendResult.UNREACHABLE),
            (errno.EHOSTUNREACH, SendResult.UNREACHABLE),
            (errno.ENETDOWN, SendResult.UNREACHABLE),
            (errno.EPERM, SendResult.FAILED),
            (errno.EINVAL, SendResult.FAILED),
            (errno.ENOBUFS, SendResult.FAILED),
        ],
    )
    def test_lasting_error_is_a_result_and_counted_once(
        self, udp: UdpSocket, kernel: FakeKernel, code: int, result: SendResult
    ) -> None:
        kernel.send_errors.extend([code, code])
        assert udp.send(Transmit(b"hello", REMOTE)) is result
        assert udp.counters.send_errors == {code: 1}
        assert kernel.sent == []

    def test_full_buffer_is_would_block_and_no_error(self, udp: UdpSocket, kernel: FakeKernel) -> None:
        kernel.send_errors.append(errno.EAGAIN)
        assert udp.send(Transmit(b"hello", REMOTE)) is SendResult.WOULD_BLOCK
        assert udp.counters.blocked == 1
        assert not udp.counters.send_errors

    def test_lasting_failure_is_logged_once(
        self, udp: UdpSocket, kernel: FakeKernel, caplog: pytest.LogCaptureFixture
    ) -> None:
        kernel.send_errors.extend([errno.EPERM] * 3)
        for _ in range(3):
            udp.send(Transmit(b"hello", REMOTE))
        assert len(caplog.records) == 1
        assert "path 7: the kernel refused to send" in caplog.text


class TestSegmentingFallback:
    @pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO, errno.EMSGSIZE])
    def test_refused_batch_goes_out_datagram_by_datagram_and_the_next_does_not_try(
        self, udp: UdpSocket, kernel: FakeKernel, caplog: pytest.LogCaptureFixture, code: int
    ) -> None:
        kernel.refuses_segmenting = code
        assert udp.send(batch(count=3)) is SendResult.SENT
        assert [data for data, _, _ in kernel.sent] == [b"\0" * 100, b"\1" * 100, b"end"]
        assert not udp.gso_available
        kernel.refuses_segmenting = 0
        assert udp.send(batch(count=3)) is SendResult.SENT
        assert all(ancillary == [] for _, ancillary, _ in kernel.sent)
        assert len(kernel.sent) == 6
        assert (udp.counters.gso_fallbacks, udp.counters.datagrams_sent) == (1, 6)
        assert len([record for record in caplog.records if "refused a segmented send" in record.message]) == 1

    def test_pending_error_does_not_switch_segmenting_off(self, udp: UdpSocket, kernel: FakeKernel) -> None:
        kernel.send_errors.append(errno.EMSGSIZE)
        assert udp.send(batch()) is SendResult.SENT
        assert udp.gso_available
        assert len(kernel.sent) == 1

    def test_segments_too_big_for_the_link_are_too_big_and_segmenting_stays_on(
        self, udp: UdpSocket, kernel: FakeKernel
    ) -> None:
        kernel.link_payload = 99
        assert udp.send(batch()) is SendResult.TOO_BIG
        assert kernel.sent == []
        assert udp.gso_available

    def test_refusal_that_is_not_about_segmenting_leaves_it_on(self, udp: UdpSocket, kernel: FakeKernel) -> None:
        kernel.send_errors.extend([errno.EINVAL, errno.EINVAL])  # the source address is gone
        assert udp.send(batch()) is SendResult.FAILED
        assert udp.gso_available

    def test_batch_beyond_the_limits_of_any_kernel_proves_nothing(
        self, udp: UdpSocket, kernel: FakeKernel
    ) -> None:
        kernel.refuses_segmenting = errno.EINVAL
        assert udp.send(batch(count=65, size=10)) is SendResult.SENT
        assert udp.gso_available
        assert len(kernel.sent) == 65

    def test_local_address_is_kept_in_the_fallback(self, udp: UdpSocket, kernel: FakeKernel) -> None:
        kernel.refuses_segmenting = errno.EIO
        transmit = batch(count=2)
        transmit.local = "198.18.0.9"
        udp.send(transmit)
        info = cmsg.packet_info(socket.AF_INET, bytes((198, 18, 0, 9)))
        assert [ancillary for _, ancillary, _ in kernel.sent] == [[info], [info]]

    def test_full_buffer_at_the_first_datagram_is_would_block(self, udp: UdpSocket, kernel: FakeKernel) -> None:
        udp.gso_available = False
        kernel.send_errors.append(errno.EAGAIN)
        assert udp.send(batch()) is SendResult.WOULD_BLOCK
        assert kernel.sent == []

    def test_full_buffer_later_loses_the_rest_and_counts_it(self, udp: UdpSocket, kernel: FakeKernel) -> None:
        udp.gso_available = False
        kernel.send_errors.extend([0, errno.EAGAIN])
        assert udp.send(batch(count=4)) is SendResult.SENT
        assert len(kernel.sent) == 1
        assert udp.counters.partly_sent == 3


class TestReceiving:
    def test_nothing_waiting_is_an_empty_list(self, udp: UdpSocket) -> None:
        assert udp.receive() == []

    def test_neighbours_of_one_remote_share_a_received(self, udp: UdpSocket, kernel: FakeKernel) -> None:
        for data, remote in ((b"1", REMOTE), (b"2", REMOTE), (b"3", OTHER), (b"4", REMOTE)):
            kernel.inbox.append((data, [], 0, remote))
        received = udp.receive()
        assert [(burst.datagrams, burst.remote) for burst in received] == [
            ([b"1", b"2"], REMOTE),
            ([b"3"], OTHER),
            ([b"4"], REMOTE),
        ]
        assert all(burst.path_id == 7 for burst in received)

    def test_ecn_and_local_address_part_neighbours(self, udp: UdpSocket, kernel: FakeKernel) -> None:
        ce = [(socket.IPPROTO_IP, cmsg.IP_TOS, b"\3")]
        local = [(socket.IPPROTO_IP, cmsg.IP_PKTINFO, bytes(4) + bytes((198, 18, 0, 9)) * 2)]
        for ancillary in ([], ce, local):
            kernel.inbox.append((b"x", ancillary, 0, REMOTE))
        assert [(burst.ecn, burst.local) for burst in udp.receive()] == [(0, None), (3, None), (0, "198.18.0.9")]

    @pytest.mark.parametrize(
        ("data", "segment", "datagrams"),
        [
            (b"aabb", 2, [b"aa", b"bb"]),
            (b"aab", 2, [b"aa", b"b"]),
            (b"aa", 2, [b"aa"]),
            (b"a", 2, [b"a"]),
            (b"", 0, [b""]),
            (b"aa", -1, [b"aa"]),
        ],
    )
    def test_coalesced_datagrams_are_split(
        self, udp: UdpSocket, kernel: FakeKernel, data: bytes, segment: int, datagrams: list[bytes]
    ) -> None:
        kernel.inbox.append((data, [(*GRO, struct.pack("=i", segment))], 0, REMOTE))
        assert [burst.datagrams for burst in udp.receive()] == [datagrams]

    def test_many_coalesced_datagrams_are_a_run_and_the_short_last_one_is_apart(
        self, udp: UdpSocket, kernel: FakeKernel
    ) -> None:
        kernel.inbox.append((b"abcd" * 30 + b"xy", [(*GRO, struct.pack("=i", 4))], 0, REMOTE))
        run, last = udp.receive()
        assert isinstance(run.datagrams, PacketRun)
        assert run.datagrams == [b"abcd"] * 30
        assert last.datagrams == [b"xy"]
        assert (run.remote, last.remote) == (REMOTE, REMOTE)

    def test_receive_stops_at_max_datagrams_and_goes_on_at_the_next_call(
        self, udp: UdpSocket, kernel: FakeKernel
    ) -> None:
        kernel.inbox.extend((b"%d" % number, [], 0, REMOTE) for number in range(5))
        assert [burst.datagrams for burst in udp.receive(3)] == [[b"0", b"1", b"2"]]
        assert [burst.datagrams for burst in udp.receive(3)] == [[b"3", b"4"]]

    @pytest.mark.parametrize("code", [errno.ECONNREFUSED, errno.EMSGSIZE, errno.EHOSTUNREACH])
    def test_pending_error_does_not_hide_the_datagrams_behind_it(
        self, udp: UdpSocket, kernel: FakeKernel, code: int
    ) -> None:
        kernel.inbox.extend([code, (b"x", [], 0, REMOTE)])
        kernel.error_queue.append(too_big_error())
        assert [burst.datagrams for burst in udp.receive()] == [[b"x"]]
        assert len(udp.read_errors()) == 1
        assert udp.error_wakeups > 0

    def test_error_without_end_ends_the_receive(self, udp: UdpSocket, kernel: FakeKernel) -> None:
        kernel.inbox.extend([errno.ECONNREFUSED] * 10_000)
        assert udp.receive() == []
        assert len(kernel.inbox) > 9_000

    def test_unknown_error_is_counted_and_logged_once(
        self, udp: UdpSocket, kernel: FakeKernel, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        for _ in range(3):
            kernel.inbox.append(errno.ENOMEM)
            assert udp.receive() == []
        assert udp.counters.receive_errors == {errno.ENOMEM: 3}
        assert len(caplog.records) == 1

    def test_truncated_message_is_thrown_away_and_counted(self, udp: UdpSocket, kernel: FakeKernel) -> None:
        kernel.inbox.append((b"x", [(*GRO, b"")], socket.MSG_CTRUNC, REMOTE))
        kernel.inbox.append((b"y", [], 0, REMOTE))
        assert [burst.datagrams for burst in udp.receive()] == [[b"y"]]
        assert udp.counters.truncated == 1

    def test_drops_without_meminfo_are_those_the_datagrams_reported(
        self, udp: UdpSocket, kernel: FakeKernel
    ) -> None:
        assert udp.drops() == 0
        overflow = (socket.SOL_SOCKET, cmsg.SO_RXQ_OVFL, struct.pack("=I", 9))
        kernel.inbox.append((b"x", [overflow], 0, REMOTE))
        udp.receive()
        assert udp.drops() == 9


class TestErrorQueue:
    def test_errors_are_handed_out_once_in_order(self, udp: UdpSocket, kernel: FakeKernel) -> None:
        kernel.error_queue.extend([too_big_error(1400), too_big_error(1300)])
        assert [error.mtu for error in udp.read_errors()] == [1400, 1300]
        assert udp.read_errors() == []

    def test_unusable_error_is_counted(self, udp: UdpSocket, kernel: FakeKernel) -> None:
        kernel.error_queue.append((b"", [], None))
        assert udp.read_errors() == []
        assert udp.counters.bad_errors == 1

    def test_errors_nobody_reads_do_not_pile_up(self, udp: UdpSocket, kernel: FakeKernel) -> None:
        for number in range(1000):
            kernel.error_queue.append(too_big_error(1280 + number % 200))
            kernel.send_errors.append(errno.EMSGSIZE)
            udp.send(Transmit(b"x", REMOTE))
        assert len(udp.read_errors()) == 256


class TestOffloads:
    def test_what_went_and_came_in_batches_is_counted(self, udp: UdpSocket, kernel: FakeKernel) -> None:
        udp.send(batch(4))
        udp.send(Transmit(b"alone", REMOTE))
        kernel.inbox.append((b"x" * 250, [(*GRO, struct.pack("=i", 100))], 0, REMOTE))
        kernel.inbox.append((b"alone", [], 0, REMOTE))
        udp.receive()
        counters = udp.counters
        assert (counters.gso_datagrams, counters.datagrams_sent) == (4, 5)
        assert (counters.gro_datagrams, counters.datagrams_received) == (3, 4)

    def test_a_batch_that_had_to_be_repeated_singly_went_alone(self, udp: UdpSocket, kernel: FakeKernel) -> None:
        kernel.refuses_segmenting = errno.EIO
        udp.send(batch(4))
        assert (udp.counters.gso_datagrams, udp.counters.datagrams_sent) == (0, 4)

    @pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO, errno.EMSGSIZE])
    def test_receives_refused_four_times_in_a_row_turn_gro_off_with_one_line(
        self, udp: UdpSocket, kernel: FakeKernel, caplog: pytest.LogCaptureFixture, code: int
    ) -> None:
        with caplog.at_level(logging.WARNING, "qtunnel.linux.udp"):
            for _ in range(12):
                kernel.inbox.append(code)
            kernel.inbox.append((b"after", [], 0, REMOTE))
            received = [each for _ in range(13) for each in udp.receive()]
        assert [each.datagrams for each in received] == [[b"after"]]
        assert not udp.gro_available
        assert udp.counters.gro_fallbacks == 1
        assert kernel.options == [(*GRO, 0)]
        lines = [record.message for record in caplog.records if "at once" in record.message]
        assert lines == [
            f"path 7: the kernel refuses to receive many datagrams at once ({os.strerror(code)}); "
            "one by one from now on"
        ]

    def test_errors_with_datagrams_or_silence_between_do_not_turn_gro_off(
        self, udp: UdpSocket, kernel: FakeKernel
    ) -> None:
        for number in range(20):
            kernel.inbox.append(errno.EIO)
            udp.receive()
            if number % 2:
                kernel.inbox.append((b"fine", [], 0, REMOTE))
            udp.receive()
        assert udp.gro_available
        assert kernel.options == []

    def test_a_kernel_that_refuses_at_the_start_is_counted(self, kernel: FakeKernel) -> None:
        opened = OpenedSocket(
            cast("socket.socket", kernel), False, False, 1, 1, gso_refused=True, gro_refused=True
        )
        counters = UdpSocket(opened).counters
        assert (counters.gso_fallbacks, counters.gro_fallbacks) == (1, 1)
