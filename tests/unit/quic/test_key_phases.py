"""Key updates between two ends that seal and open directly."""

from __future__ import annotations

import pytest
from aioquic.tls import CipherSuite

from qtunnel.quic import key_phases
from qtunnel.quic.key_phases import KeyPhases

CID = b"abcd"
ONE, TWO = bytes(range(32)), bytes(range(32, 64))
PTO = 0.1


class End:
    """One end: packets in, packets out, numbers counted."""

    def __init__(self, send: bytes, receive: bytes, update_after: int = 1 << 22) -> None:
        self.updates = 0
        self.keys = KeyPhases(
            CipherSuite.AES_128_GCM_SHA256,
            send_secret=send,
            receive_secret=receive,
            key_phase=0,
            on_update=self._count,
            update_after=update_after,
        )
        self.next = 0

    def _count(self) -> None:
        self.updates += 1

    def packet(self, payload: bytes) -> tuple[int, bytes]:
        (data,) = self.keys.send.seal([payload], self.next, CID)
        self.next += 1
        return self.next - 1, data

    def open(self, number: int, data: bytes, now: float = 0.0) -> bytes | None:
        ((first, truncated, bits),) = self.keys.receive.unmask([data], len(CID))
        header = bytes((first,)) + data[1:5] + truncated.to_bytes(bits // 8)
        body = data[5 + bits // 8 :]
        return self.keys.open(body, header, number, first >> 2 & 1, now, PTO, self.next)


def ends(update_after: int = 1 << 22) -> tuple[End, End]:
    return End(ONE, TWO, update_after), End(TWO, ONE)


def test_an_update_of_one_end_is_followed_by_the_other() -> None:
    a, b = ends()
    assert b.open(*a.packet(b"before")) == b"before"
    a.keys.update(a.next, 0.0, PTO)
    assert b.open(*a.packet(b"after")) == b"after"
    assert b.updates == 1
    assert a.open(*b.packet(b"answer")) == b"answer"
    assert a.keys.send.key_phase == b.keys.send.key_phase == 1


def test_late_packets_of_the_previous_phase_are_opened_for_three_pto() -> None:
    a, b = ends()
    early, late = a.packet(b"early"), a.packet(b"too late")
    a.keys.update(a.next, 0.0, PTO)
    assert b.open(*a.packet(b"after"), now=1.0) == b"after"
    assert b.open(*early, now=1.0 + 2.9 * PTO) == b"early"
    assert b.open(*late, now=1.0 + 3.1 * PTO) is None


def test_an_end_does_not_update_twice_before_the_first_is_confirmed() -> None:
    a, b = ends(update_after=3)
    for _ in range(4):
        b.open(*a.packet(b"data"))
    a.keys.maybe_update(a.next, 0.0, PTO)
    for _ in range(4):
        b.open(*a.packet(b"data"))
    a.keys.maybe_update(a.next, 0.0, PTO)
    assert a.updates == 1
    a.open(*b.packet(b"answer"))
    a.keys.acknowledged(a.next - 1)
    a.keys.maybe_update(a.next, 0.0, PTO)
    assert a.updates == 2


def test_updates_go_on_for_ever() -> None:
    a, b = ends()
    for number in range(20):
        a.keys.update(a.next, float(number), PTO)
        assert b.open(*a.packet(b"data"), now=float(number)) == b"data"
        assert a.open(*b.packet(b"answer"), now=float(number)) == b"answer"
    assert a.updates == b.updates == 20


def test_both_ends_may_begin_one_at_once() -> None:
    a, b = ends()
    a.keys.update(a.next, 0.0, PTO)
    b.keys.update(b.next, 0.0, PTO)
    assert b.open(*a.packet(b"from a")) == b"from a"
    assert a.open(*b.packet(b"from b")) == b"from b"
    assert a.updates == b.updates == 1


def test_a_forged_phase_bit_starts_no_update() -> None:
    a, b = ends()
    number, data = a.packet(b"data")
    forged = bytes((data[0] ^ 4,)) + data[1:]
    assert b.open(number, forged) is None
    assert b.updates == 0
    assert b.open(number, data) == b"data"


def test_mpq_47_at_the_limit_of_a_key_nothing_more_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_phases, "SEAL_LIMIT", 5)
    a, _ = ends()
    for _ in range(4):
        a.packet(b"data")
    assert not a.keys.is_exhausted
    a.packet(b"data")
    assert a.keys.is_exhausted
