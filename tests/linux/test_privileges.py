"""Giving up capabilities, each time in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from qtunnel.errors import SystemSetupError
from qtunnel.linux.privileges import (
    _to_mask,
    _to_names,
    drop_privileges,
    effective_capabilities,
    has_capability,
    require_capabilities,
)

SHOW = "print(*[line.strip() for line in open('/proc/thread-self/status') if line.startswith(('Cap', 'NoNew'))])\n"
NET_ADMIN, NET_BIND_SERVICE = 1 << 12, 1 << 10


def run(code: str) -> str:
    preamble = "from qtunnel.linux.privileges import *\nfrom qtunnel.errors import SystemSetupError\n"
    command = [sys.executable, "-W", "error", "-c", preamble + code]
    # As the command line does: BLAS would start threads, which keep the privileges they were started with.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def sets(text: str) -> dict[str, int]:
    words = text.split()
    return {name.rstrip(":"): int(value, 16) for name, value in zip(words[::2], words[1::2], strict=True)}


@pytest.mark.root
class TestDropping:
    def test_only_what_is_kept_is_left_in_every_set(self) -> None:
        found = sets(run("drop_privileges({'NET_ADMIN', 'NET_BIND_SERVICE'})\n" + SHOW))
        mask = NET_ADMIN | NET_BIND_SERVICE
        assert found == {
            "CapInh": mask,
            "CapPrm": mask,
            "CapEff": mask,
            "CapBnd": mask,
            "CapAmb": mask,
            "NoNewPrivs": 1,
        }

    def test_a_program_started_later_has_no_more(self) -> None:
        code = (
            "import subprocess, sys\n"
            "drop_privileges({'NET_ADMIN'})\n"
            f"subprocess.run([sys.executable, '-c', {SHOW!r}], check=True)\n"
        )
        found = sets(run(code))
        assert found["CapEff"] == found["CapPrm"] == found["CapBnd"] == NET_ADMIN

    def test_what_was_kept_still_works_and_the_rest_does_not(self) -> None:
        code = (
            "import ctypes, os, socket\n"
            "from qtunnel.linux.tun import Tun\n"
            "assert ctypes.CDLL(None).unshare(0x40000000) == 0\n"  # a network namespace of its own
            "drop_privileges({'NET_ADMIN'})\n"
            "Tun.open('qtt0').close()\n"
            "try:\n"
            "    os.chown('/proc/self', 1, 1)\n"
            "except PermissionError:\n"
            "    print('no chown')\n"
            "try:\n"
            "    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n"
            "except PermissionError:\n"
            "    print('no capture')\n"
        )
        assert run(code).split("\n")[:2] == ["no chown", "no capture"]

    def test_nothing_kept_leaves_nothing(self) -> None:
        found = sets(run("drop_privileges(())\n" + SHOW))
        assert found == dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0) | {"NoNewPrivs": 1}

    def test_a_second_call_can_only_take_more_away(self) -> None:
        code = "drop_privileges({'NET_ADMIN'})\ndrop_privileges({'NET_ADMIN', 'SYS_ADMIN'})\n"
        assert sets(run(code + SHOW))["CapPrm"] == NET_ADMIN
        assert sets(run(code + "drop_privileges(())\n" + SHOW))["CapPrm"] == 0

    def test_the_bounding_set_may_stay_where_we_may_not_change_it(self) -> None:
        code = (
            "import ctypes\n"
            "low = 1 << 12\n"  # as a service with AmbientCapabilities=CAP_NET_ADMIN has it
            "data = (ctypes.c_uint32 * 6)(low, low, low, 0, 0, 0)\n"
            "assert ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), data) == 0\n"
            "drop_privileges({'NET_ADMIN'})\n"
        )
        child = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {SHOW!r}], check=True)\n"
        found = sets(run(code + child))
        assert found["CapPrm"] == found["CapEff"] == NET_ADMIN

    def test_a_thread_started_before_is_noticed(self) -> None:
        code = (
            "import threading\n"
            "stop = threading.Event()\n"
            "thread = threading.Thread(target=stop.wait)\n"
            "thread.start()\n"
            "try:\n"
            "    drop_privileges({'NET_ADMIN'})\n"
            "except SystemSetupError as error:\n"
            "    print(error)\n"
            "finally:\n"
            "    stop.set()\n"
        )
        assert "1 threads of this process were started before" in run(code)

    def test_a_thread_started_afterwards_has_no_more(self) -> None:
        code = (
            "import threading\n"
            "drop_privileges({'NET_ADMIN'})\n"
            f"thread = threading.Thread(target=lambda: exec({SHOW!r}))\n"
            "thread.start()\n"
            "thread.join()\n"
        )
        assert sets(run(code))["CapPrm"] == NET_ADMIN

    def test_missing_capabilities_are_named(self) -> None:
        code = (
            "drop_privileges(())\n"
            "assert not has_capability('NET_ADMIN')\n"
            "try:\n"
            "    require_capabilities({'NET_ADMIN', 'NET_RAW'}, 'make a TUN device')\n"
            "except SystemSetupError as error:\n"
            "    print(error)\n"
        )
        assert run(code).startswith("to make a TUN device, CAP_NET_ADMIN and CAP_NET_RAW is needed. Run as root")

    def test_root_has_what_it_asks_for(self) -> None:
        require_capabilities({"NET_ADMIN"}, "make a TUN device")
        assert has_capability("NET_ADMIN")


@pytest.mark.parametrize(
    ("name", "number"),
    [("CHOWN", 0), ("NET_BIND_SERVICE", 10), ("NET_ADMIN", 12), ("SYS_ADMIN", 21), ("CHECKPOINT_RESTORE", 40)],
)
def test_names_have_the_kernels_numbers(name: str, number: int) -> None:
    assert _to_mask([name]) == 1 << number
    assert _to_names(1 << number | 1 << 63) == {name, "63"}


def test_a_capability_that_does_not_exist_is_refused_before_anything_happens() -> None:
    before = effective_capabilities()
    with pytest.raises(SystemSetupError, match="there is no capability NET_ADMINN"):
        drop_privileges({"NET_ADMINN"})
    assert effective_capabilities() == before
