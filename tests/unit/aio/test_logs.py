from __future__ import annotations

from pathlib import Path

import pytest

from qtunnel.aio.logs import MAX_OPEN, ConnectionLogs
from qtunnel.config import QuicConfig
from qtunnel.errors import SystemSetupError


def test_without_settings_there_are_no_sinks() -> None:
    logs = ConnectionLogs(QuicConfig())
    assert logs.qlog is None
    assert logs.secrets is None


def test_key_log_lines_go_to_a_file_only_its_owner_can_read(tmp_path: Path) -> None:
    path = tmp_path / "keys.log"
    logs = ConnectionLogs(QuicConfig(secrets_log_file=str(path)))
    assert logs.secrets is not None
    logs.secrets("CLIENT_TRAFFIC_SECRET_0 aa bb")
    logs.close()
    assert path.read_text() == "CLIENT_TRAFFIC_SECRET_0 aa bb\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_each_connection_has_its_trace_and_few_files_are_open(tmp_path: Path) -> None:
    logs = ConnectionLogs(QuicConfig(qlog_dir=str(tmp_path)))
    assert logs.qlog is not None
    sinks = [logs.qlog(f"trace {number}") for number in range(MAX_OPEN + 20)]
    for round_number in range(2):
        for sink in sinks:
            sink(f"line {round_number}")
    assert len(logs._open_files) == MAX_OPEN
    logs.close()
    files = sorted(tmp_path.glob("*.sqlog"))
    assert len(files) == MAX_OPEN + 20
    assert {path.read_text() for path in files} == {"line 0\nline 1\n"}


def test_a_trace_cannot_name_a_file_elsewhere(tmp_path: Path) -> None:
    logs = ConnectionLogs(QuicConfig(qlog_dir=str(tmp_path)))
    assert logs.qlog is not None
    logs.qlog("../../etc/passwd")("line")
    logs.close()
    assert [path.name for path in tmp_path.iterdir()] == [".._.._etc_passwd.sqlog"]


def test_a_missing_directory_is_said_at_once_with_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(SystemSetupError, match="mkdir -p"):
        ConnectionLogs(QuicConfig(qlog_dir=str(tmp_path / "none")))


def test_a_key_log_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(SystemSetupError, match=r"^cannot write"):
        ConnectionLogs(QuicConfig(secrets_log_file=str(tmp_path / "none" / "keys.log")))


def test_a_full_disk_is_logged_once_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    mode = Path("/dev/full").stat().st_mode
    logs = ConnectionLogs(QuicConfig(secrets_log_file="/dev/full"))
    assert logs.secrets is not None
    for _ in range(1000):
        logs.secrets("CLIENT_TRAFFIC_SECRET_0 aa bb")
    logs.close()
    assert [record.getMessage() for record in caplog.records] == [
        "cannot write /dev/full: No space left on device"
    ]
    assert Path("/dev/full").stat().st_mode == mode, "a device is everybody's"
