"""qlog and key log: lines as things happen, times of the connection's clock, no credentials."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable

from tests.sim.quic_pair import REQUEST, QuicPair, client_settings, server_settings


def test_events_are_written_as_they_happen_with_the_clock_given() -> None:
    traces: dict[str, list[str]] = defaultdict(list)

    def open_sink(name: str) -> Callable[[str], None]:
        return traces[name].append

    pair = QuicPair(client=client_settings(qlog=open_sink), server=server_settings(qlog=open_sink))
    pair.connect()
    pair.client.send_request([*REQUEST, (b"authorization", b"Bearer s3cret"), (b"x", b"\xff\xfe")])
    pair.run(0.1)
    assert sorted(name.split("_")[1] for name in traces) == ["client", "server"]
    for lines in traces.values():
        records = [json.loads(line) for line in lines]
        assert records[0]["qlog_format"] == "NDJSON"
        times = [record["time"] for record in records[1:]]
        assert times == sorted(times)
        assert 1_000_000.0 <= times[-1] <= pair.now * 1000
        names = {record["name"] for record in records[1:]}
        assert {"transport:packet_sent", "transport:packet_received"} <= names
        assert "s3cret" not in "".join(lines)
        assert "Bearer" not in "".join(lines)


def test_the_key_log_has_the_lines_tshark_reads() -> None:
    lines: list[str] = []
    pair = QuicPair(client=client_settings(secrets=lines.append))
    pair.connect()
    labels = {line.split(" ")[0] for line in lines}
    assert {
        "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
        "SERVER_HANDSHAKE_TRAFFIC_SECRET",
        "CLIENT_TRAFFIC_SECRET_0",
        "SERVER_TRAFFIC_SECRET_0",
    } <= labels
    assert all(len(line.split(" ")) == 3 and "\n" not in line for line in lines)


def test_without_sinks_there_is_no_trace() -> None:
    pair = QuicPair()
    pair.connect()
    assert pair.client.quic.configuration.quic_logger is None
    assert pair.client.quic.configuration.secrets_log_file is None
