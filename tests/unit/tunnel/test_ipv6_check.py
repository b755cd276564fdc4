from ipaddress import IPv6Address

from qtunnel.ip.echo import answer_echo, build_echo_request6
from qtunnel.tunnel.ipv6_check import GIVE_UP_AT, SEND_AT, CheckResult, Ipv6Check

CLIENT = IPv6Address("fd00:77::2")
SERVER = IPv6Address("fd00:77::1")
ALL_NODES = IPv6Address("ff02::1")


def check() -> Ipv6Check:
    return Ipv6Check(source=CLIENT, destinations=(ALL_NODES,), identifier=0x1234, now=10.0)


def answer(packet: bytes) -> bytes:
    reply = answer_echo(packet, SERVER)
    assert reply is not None
    return reply


def test_cip_73_the_echo_is_an_ipv6_packet_of_1280_bytes() -> None:
    packet = check().packet_to_send(10.0)
    assert packet is not None
    assert len(packet) == 1280
    assert packet[24:40] == ALL_NODES.packed


def test_cip_73_one_answer_of_full_length_settles_it() -> None:
    each = check()
    packet = each.packet_to_send(10.0)
    assert packet is not None
    assert each.receive([answer(packet)]) == []
    assert each.result is CheckResult.FITS
    assert each.get_timer() is None
    assert each.packet_to_send(11.0) is None


def test_cip_73_no_answer_at_all_means_it_does_not_fit() -> None:
    each = check()
    sent = [packet for at in SEND_AT if (packet := each.packet_to_send(10.0 + at)) is not None]
    assert len(sent) == len(SEND_AT)
    assert each.result is CheckResult.PENDING
    assert each.packet_to_send(10.0 + GIVE_UP_AT) is None
    assert each.has_failed


def test_nothing_is_sent_before_it_is_due() -> None:
    each = check()
    assert each.packet_to_send(10.0) is not None
    assert each.packet_to_send(10.0) is None
    assert each.get_timer() == 10.0 + SEND_AT[1]


def test_a_shorter_answer_proves_nothing() -> None:
    each = check()
    short = build_echo_request6(CLIENT, ALL_NODES, 0x1234, 1, data_length=1000)
    reply = answer(short)
    assert each.receive([reply]) == [reply]
    assert each.result is CheckResult.PENDING


def test_somebody_elses_answer_stays_in_the_stream() -> None:
    each = check()
    other = answer(build_echo_request6(CLIENT, ALL_NODES, 0x4321, 1))
    assert each.receive([other, b"\x45" + bytes(39)]) == [other, b"\x45" + bytes(39)]
    assert each.result is CheckResult.PENDING
