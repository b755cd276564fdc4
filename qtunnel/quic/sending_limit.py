"""What keeps inner packets from leaving now: the window, the pacer, the peer, the path, or nothing.

Told from what recovery and queue know anyway, and only when somebody asks: no packet costs anything for it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from qtunnel.quic.packet_queue import PacketQueue
    from qtunnel.quic.path import Path

__all__ = ["SendingLimit", "sending_limit"]

STANDING_QUEUE_FACTOR: Final = 1.25
STANDING_QUEUE_S: Final = 0.005
"""A smoothed RTT above min_rtt by the factor and these seconds means that packets wait in the path."""
RECENT_LOSS_S: Final = 1.0


class SendingLimit(StrEnum):
    """What limits a sender; the driver sees the first two, sending_limit the rest. People see the value."""

    CPU = "cpu"  # the process runs, or waits for a CPU, nearly all the time
    SOCKET_BUFFER = "socket-buffer"  # a UDP socket's buffer is full: of what is sent, or of what came
    PEER = "peer"  # it does not acknowledge, or has not validated its address yet
    PATH = "path"  # window or pacer, and the path shows that it is full: losses, or a standing queue
    WINDOW = "window"  # the congestion window, while the path shows no sign of being full
    PACING = "pacing"  # the rate of the congestion control, while the path shows no sign of being full
    NOTHING = "nothing"  # all there is to send has been sent


def sending_limit(
    path: Path, queue: PacketQueue, now: float, *, room: int, last_loss: float | None
) -> SendingLimit:
    """Say why packets are left in the queue, asked after all that may leave has left.

    room: bytes that may go to the peer's address, which bounds an address that is not validated
    (RFC 9000 §8.1). last_loss: when a packet was last declared lost.
    """
    if not queue.packets:
        return SendingLimit.NOTHING
    recovery = path.recovery
    first = queue.first_size
    if recovery.pto_count or path.is_number_ambiguous or room < first:
        return SendingLimit.PEER
    if last_loss is not None and now - last_loss < RECENT_LOSS_S:
        return SendingLimit.PATH
    if recovery.smoothed_rtt > recovery.min_rtt * STANDING_QUEUE_FACTOR + STANDING_QUEUE_S:
        return SendingLimit.PATH
    return SendingLimit.WINDOW if recovery.can_send() < first else SendingLimit.PACING
