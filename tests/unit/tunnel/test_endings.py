import pytest

from qtunnel.quic.events import CloseCause, ConnectionClosed
from qtunnel.tunnel.endings import H3_NO_ERROR, H3_REQUEST_REJECTED, describe_close
from qtunnel.tunnel.events import CloseReason

REMOTE = ("2001:db8::1", 443, 0, 0)


def closed(cause: CloseCause, code: int = 0, *, is_application: bool = True, reason: str = "") -> ConnectionClosed:
    return ConnectionClosed(cause, code, is_application, reason)


@pytest.mark.parametrize("cause", list(CloseCause))
def test_every_cause_has_a_reason_and_a_sentence_naming_the_server(cause: CloseCause) -> None:
    for was_up in (False, True):
        reason, text = describe_close(closed(cause, reason="because"), was_up=was_up, remote=REMOTE)
        assert isinstance(reason, CloseReason)
        assert "[2001:db8::1]:443" in text
        assert text[0].islower()  # it is written after "no tunnel: " and the like


def test_a_user_who_connected_elsewhere_is_told_so() -> None:
    reason, text = describe_close(closed(CloseCause.PEER, H3_REQUEST_REJECTED), was_up=True, remote=REMOTE)
    assert reason is CloseReason.REPLACED
    assert "a user of its own" in text


def test_the_same_code_before_the_tunnel_was_up_is_no_replacement() -> None:
    reason, _ = describe_close(closed(CloseCause.PEER, H3_REQUEST_REJECTED), was_up=False, remote=REMOTE)
    assert reason is CloseReason.PEER


def test_a_server_that_closes_without_error_is_shutting_down() -> None:
    reason, _ = describe_close(closed(CloseCause.PEER, H3_NO_ERROR), was_up=True, remote=REMOTE)
    assert reason is CloseReason.SHUTDOWN


def test_the_mqvpn_servers_way_to_refuse_a_key_is_recognised() -> None:
    reason, _ = describe_close(closed(CloseCause.PEER, 0x106), was_up=False, remote=REMOTE)
    assert reason is CloseReason.AUTHENTICATION


def test_what_the_peer_says_is_part_of_the_sentence() -> None:
    _, text = describe_close(closed(CloseCause.PEER, 0x101, reason="going home"), was_up=True, remote=REMOTE)
    assert "going home" in text
    assert "0x101" in text
