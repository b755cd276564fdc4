"""Reading what ping and iperf3 print, and tables."""

import json

import pytest

from netlab import iperf, table
from netlab.errors import CommandError
from netlab.pings import parse_ping

PING = """PING 10.77.1.1 (10.77.1.1) 56(84) bytes of data.
64 bytes from 10.77.1.1: icmp_seq=1 ttl=64 time=0.421 ms
64 bytes from 10.77.1.1: icmp_seq=3 ttl=64 time=1.5 ms

--- 10.77.1.1 ping statistics ---
3 packets transmitted, 2 received, 33% packet loss, time 400ms
"""


def test_ping_counts_and_times():
    result = parse_ping(PING, count=3)
    assert (result.sent, result.received, result.times) == (3, 2, (0.421, 1.5))
    assert not result.ok


def test_ping_that_could_not_send_counts_as_sent():
    result = parse_ping("ping: connect: Network is unreachable\n", count=3)
    assert (result.sent, result.received) == (3, 0)


def report(**end: object) -> str:
    cpu = {"host_total": 50.0, "remote_total": 25.0}
    intervals = [{"sum": {"seconds": 1.0, "bits_per_second": rate}} for rate in (1e6, 2e6)]
    own = {"intervals": intervals, "end": {"cpu_utilization_percent": cpu, **end}}
    return json.dumps(own | {"server_output_json": {"intervals": intervals[::-1]}}, indent=1)


def test_receivers_intervals_are_taken_and_their_times_added_up():
    text = report(sum_received={"bits_per_second": 1.5e6, "bytes": 10}, sum_sent={"retransmits": 4})
    flow = iperf.parse(text, reverse=False)
    assert flow.series == [(1.0, 2.0), (2.0, 1.0)]
    assert (flow.mbps, flow.retransmits, flow.sender_cpu, flow.receiver_cpu) == (1.5, 4, 0.5, 0.25)
    assert iperf.parse(text, reverse=True).series == [(1.0, 1.0), (2.0, 2.0)]


def test_warnings_before_the_report_do_no_harm():
    text = "warning: UDP block size too large\n" + report(sum={"bits_per_second": 1e6, "bytes": 1})
    assert iperf.parse(text, reverse=False).mbps == 1.0


@pytest.mark.parametrize(
    "text", ["", "iperf3: error", '{\n "error": "unable to connect"}', "{\n}", '{\n "end": {}}']
)
def test_failure_is_an_error_of_ours(text):
    with pytest.raises(CommandError, match="iperf3"):
        iperf.parse(text, reverse=False)


def test_table_columns_are_as_wide_as_needed():
    assert table.render(("a", "bb"), [("ccc", "d")]) == "a    bb\n---  --\nccc  d"


def test_numbers_have_four_digits_and_no_exponent():
    assert [table.number(value) for value in (0.0, 12.0, 1.23456, 20000.4, 0.02512)] == [
        "0",
        "12",
        "1.235",
        "20,000",
        "0.02512",
    ]
