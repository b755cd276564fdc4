"""NewReno as RFC 9002 §7.3 has it, with HyStart++ in front."""

from __future__ import annotations

from qtunnel.recovery.congestion.base import AckSample
from qtunnel.recovery.congestion.loss_based import LossBased

__all__ = ["NewReno"]


class NewReno(LossBased):
    """One datagram more for each window acknowledged, half the window after a loss."""

    BETA = 0.5  # kLossReductionFactor
    name = "reno"

    __slots__ = ()

    def _avoid(self, sample: AckSample, acked: int) -> None:
        self._window += self.max_datagram_size * acked / self._window
