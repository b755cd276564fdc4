"""What keeps packets in the queue, told apart (A64)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from qtunnel.quic.packet_queue import PacketQueue
from qtunnel.quic.path import Path
from qtunnel.quic.sending_limit import SendingLimit, sending_limit
from tests.sim.quic_pair import QuicPair
from tests.unit.quic.planes import open_pair, plane_of, settings

NOW = 100.0
AT_EASE: dict[str, Any] = {"pto_count": 0, "smoothed_rtt": 0.041, "min_rtt": 0.04, "can_send": lambda: 0}


def limit(
    packets: int = 3,
    *,
    is_number_ambiguous: bool = False,
    room: int = 65000,
    last_loss: float | None = None,
    **recovery: Any,
) -> SendingLimit:
    path = SimpleNamespace(recovery=SimpleNamespace(**AT_EASE | recovery), is_number_ambiguous=is_number_ambiguous)
    queue = SimpleNamespace(packets=packets, first_size=1400)
    return sending_limit(cast(Path, path), cast(PacketQueue, queue), NOW, room=room, last_loss=last_loss)


def test_an_empty_queue_is_limited_by_nothing_whatever_the_path_does() -> None:
    assert limit(0, pto_count=3, last_loss=NOW) is SendingLimit.NOTHING


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, SendingLimit.WINDOW),
        ({"can_send": lambda: 1399}, SendingLimit.WINDOW),
        ({"can_send": lambda: 30_000}, SendingLimit.PACING),
        ({"last_loss": NOW - 0.5}, SendingLimit.PATH),
        ({"last_loss": NOW - 2}, SendingLimit.WINDOW),
        ({"smoothed_rtt": 0.08}, SendingLimit.PATH),
        ({"smoothed_rtt": 0.08, "can_send": lambda: 30_000}, SendingLimit.PATH),
        ({"smoothed_rtt": 0.004, "min_rtt": 0.0003}, SendingLimit.WINDOW),
        ({"pto_count": 1}, SendingLimit.PEER),
        ({"is_number_ambiguous": True}, SendingLimit.PEER),
        ({"room": 300}, SendingLimit.PEER),
    ],
)
def test_a64_the_limit_is_the_one_that_holds(facts: dict[str, Any], expected: SendingLimit) -> None:
    assert limit(**facts) is expected


def test_a64_a_connection_names_its_window_at_first_and_a_silent_peer_later() -> None:
    is_deaf = False
    pair = QuicPair(**settings(), delay=0.05, lose=lambda data, to_server: is_deaf)  # type: ignore[arg-type]
    stream_id, _ = open_pair(pair)
    assert pair.client.sending_limit(pair.now) is SendingLimit.NOTHING
    pair.client.send_packets(stream_id, [bytes([0x45]) + bytes(1300)] * 200, pair.now)
    pair.flush()
    assert pair.client.sending_limit(pair.now) in (SendingLimit.WINDOW, SendingLimit.PACING)
    is_deaf = True
    pair.run_until(lambda: plane_of(pair.client).path.recovery.pto_count > 0)
    assert pair.client.sending_limit(pair.now) is SendingLimit.PEER
