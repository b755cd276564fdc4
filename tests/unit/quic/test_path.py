from qtunnel.quic.packet_protection import PACKET_NUMBER_SIZE
from qtunnel.quic.path import MAX_OUTSTANDING, Path
from qtunnel.recovery.congestion import make_congestion_control
from qtunnel.recovery.loss_recovery import LossRecovery


def test_two_bytes_of_packet_number_are_never_ambiguous() -> None:
    assert MAX_OUTSTANDING < 1 << (8 * PACKET_NUMBER_SIZE - 1)


def test_a_path_starts_with_nothing_received_and_nothing_sent() -> None:
    recovery = LossRecovery(congestion=make_congestion_control("cubic", 1200), max_ack_delay=0.025)
    path = Path(0, None, recovery)
    assert path.received.largest == -1
    assert path.next_number == path.first_number == 0
    assert Path(1, None, recovery).received is not path.received
