"""The time a process ran or waited for a CPU."""

from __future__ import annotations

from pathlib import Path
from time import process_time

import pytest

from qtunnel.linux.cpu_time import SCHEDSTAT, wanted_cpu_time


def test_running_and_waiting_for_a_cpu_both_count(tmp_path: Path) -> None:
    file = tmp_path / "schedstat"
    file.write_bytes(b"1500000000 250000000 77\n")
    assert wanted_cpu_time(file) == 1.75


@pytest.mark.parametrize("content", [None, b"", b"no numbers here"])
def test_without_schedstat_what_it_ran_is_all_there_is(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "schedstat"
    if content is not None:
        file.write_bytes(content)
    before = process_time()
    assert before <= wanted_cpu_time(file) <= process_time()


@pytest.mark.skipif(not SCHEDSTAT.exists(), reason="this kernel has no schedstat")
def test_work_makes_it_grow() -> None:
    before = wanted_cpu_time()
    while process_time() < before:  # the other clock starts no later
        pass
    sum(range(3_000_000))
    assert wanted_cpu_time() > before
