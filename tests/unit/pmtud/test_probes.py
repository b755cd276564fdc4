"""qtunnel.pmtud.probes."""

from __future__ import annotations

from qtunnel.pmtud.probes import SMALL_SIZE, ProbePacket, Purpose


def test_all_but_a_trailer_are_probes() -> None:
    assert [purpose for purpose in Purpose if not ProbePacket(SMALL_SIZE, purpose).is_probe] == [Purpose.TRAILER]
