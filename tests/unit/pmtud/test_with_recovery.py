"""qtunnel.pmtud beside qtunnel.recovery: probes and the congestion window (RFC 8899 §3, RFC 9000 §14.4)."""

from __future__ import annotations

import pytest

from qtunnel.pmtud.config import PathMtuConfig
from qtunnel.pmtud.discovery import PathMtuDiscovery
from qtunnel.pmtud.states import State
from qtunnel.recovery.congestion import make_congestion_control
from qtunnel.recovery.loss_recovery import LossRecovery

RTT = 0.1


class Pair:
    """Discovery and recovery, and a path that carries UDP payloads of up to 1300 bytes."""

    def __init__(self, congestion: str) -> None:
        self.now = 10.0
        self.discovery = PathMtuDiscovery(PathMtuConfig())
        self.recovery = LossRecovery(
            congestion=make_congestion_control(congestion, 1200, seed=1),
            max_ack_delay=0.025,
            max_datagram_size=1200,
        )
        self.number = 0
        self.discovery.on_confirmed(self.now)

    def flight(self) -> None:
        """Send a flight, and take the answer."""
        first = self.number
        arrived = []
        for packet in self.discovery.packets_to_send(self.now, self.recovery.can_send()):
            self.recovery.on_packets_sent(self.number, 1, packet.size, self.now, is_mtu_probe=packet.is_probe)
            if packet.is_probe:
                self.discovery.on_probe_sent(self.number, packet, self.now)
            if packet.size <= 1300:
                arrived.append(self.number)
            self.number += 1
        assert self.number > first
        self.in_flight = self.recovery.bytes_in_flight
        self.now += RTT
        for number in arrived:
            result = self.recovery.on_ack_received([(number, number)], 0.0, self.now)
            if result.rtt_updated:
                self.discovery.on_rtt(RTT, RTT, RTT, self.recovery.pto())
            self.discovery.on_probes_acked(result.acked_probes, self.now)
            self.discovery.on_probes_lost(result.lost_probes, self.now)
        timer = self.recovery.get_timer()
        if timer is not None:
            self.now = timer
            self.discovery.on_probes_lost(self.recovery.on_timeout(self.now).lost_probes, self.now)


@pytest.mark.parametrize("congestion", ["cubic", "bbr"])
def test_dpl_07_qtr_24_probes_fill_the_window_and_their_loss_does_not_shrink_it(congestion: str) -> None:
    pair = Pair(congestion)
    window = pair.recovery.can_send()
    pair.flight()
    assert pair.in_flight > 10_000
    while pair.discovery.state is State.SEARCHING:
        pair.flight()
    assert pair.discovery.probes_lost > 10
    assert pair.recovery.can_send() >= window
    assert pair.recovery.bytes_in_flight == 0


@pytest.mark.parametrize("congestion", ["cubic", "bbr"])
def test_dpl_08_a_larger_size_makes_the_window_no_larger_in_bytes(congestion: str) -> None:
    pair = Pair(congestion)
    before = pair.recovery.can_send()
    pair.recovery.set_max_datagram_size(1472)
    assert pair.recovery.can_send() <= before
