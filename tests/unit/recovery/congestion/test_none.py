"""qtunnel.recovery.congestion.none."""

from __future__ import annotations

from qtunnel.recovery.congestion.none import Unlimited
from tests.unit.recovery.congestion.samples import ack, loss


def test_nothing_moves_it() -> None:
    control = Unlimited()
    window = control.congestion_window
    control.on_idle_restart(1.0)
    control.on_ack(ack(1.0, 12000))
    control.on_loss(loss())
    control.on_spurious_loss(1.0)
    control.on_persistent_congestion(1.0)
    control.on_ecn_ce(1.0, starts_recovery=True)
    control.set_max_datagram_size(900)
    assert control.congestion_window == window > 1 << 30
    assert control.pacing_rate is None
