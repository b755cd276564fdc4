"""Forwarding switched on and back, against a folder; the kernel's part is tested in tests/linux/test_host.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from qtunnel.errors import SystemSetupError
from qtunnel.linux.forwarding import Forwarding
from qtunnel.linux.sysctl import read_sysctl


@pytest.fixture
def root(tmp_path: Path) -> Path:
    settings = {
        "net/ipv4/ip_forward": "0",
        "net/ipv4/conf/all/accept_redirects": "0",
        "net/ipv4/conf/eth0/forwarding": "1",
        "net/ipv4/conf/eth1/forwarding": "0",
        "net/ipv6/conf/all/forwarding": "0",
        "net/ipv6/conf/all/accept_ra": "1",
        "net/ipv6/conf/default/accept_ra": "1",
        "net/ipv6/conf/eth0/accept_ra": "1",
        "net/ipv6/conf/eth1/accept_ra": "0",
        "net/ipv6/conf/eth2/accept_ra": "2",
        "net/ipv6/conf/eth0/forwarding": "0",
    }
    for key, value in settings.items():
        put(tmp_path, key, value)
    return tmp_path


def put(root: Path, key: str, value: str) -> None:
    (root / key).parent.mkdir(parents=True, exist_ok=True)
    (root / key).write_text(value)


def everything(root: Path) -> dict[str, str | None]:
    keys = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
    return {key: read_sysctl(key, root=root) for key in keys}


def test_ipv4_is_switched_on_and_all_the_kernel_overwrites_is_put_back(root: Path) -> None:
    before = everything(root)
    forwarding = Forwarding(4, root=root)
    assert forwarding.switch_on()
    assert read_sysctl("net/ipv4/ip_forward", root=root) == "1"
    for key in ("eth0/forwarding", "eth1/forwarding"):
        put(root, f"net/ipv4/conf/{key}", "0")  # as the kernel does when it is switched off
    put(root, "net/ipv4/conf/all/accept_redirects", "1")
    forwarding.restore()
    assert everything(root) == before


def test_interfaces_that_listen_to_routers_keep_listening(root: Path) -> None:
    before = everything(root)
    forwarding = Forwarding(6, root=root)
    forwarding.switch_on()
    assert read_sysctl("net/ipv6/conf/eth0/accept_ra", root=root) == "2"
    assert read_sysctl("net/ipv6/conf/eth1/accept_ra", root=root) == "0"
    assert read_sysctl("net/ipv6/conf/default/accept_ra", root=root) == "1"
    forwarding.restore()
    assert everything(root) == before


@pytest.mark.parametrize("version", [4, 6])
def test_what_was_on_is_not_touched(root: Path, version: int) -> None:
    put(root, "net/ipv4/ip_forward", "1")
    put(root, "net/ipv6/conf/all/forwarding", "1")
    before = everything(root)
    forwarding = Forwarding(version, root=root)
    assert not forwarding.switch_on()
    assert everything(root) == before
    forwarding.restore()
    assert everything(root) == before


def test_what_somebody_switched_off_meanwhile_stays_off(root: Path) -> None:
    forwarding = Forwarding(4, root=root)
    forwarding.switch_on()
    put(root, "net/ipv4/ip_forward", "0")
    put(root, "net/ipv4/conf/eth0/forwarding", "0")
    forwarding.restore()
    assert read_sysctl("net/ipv4/conf/eth0/forwarding", root=root) == "0"


def test_an_interface_that_went_away_is_no_error(root: Path) -> None:
    forwarding = Forwarding(6, root=root)
    forwarding.switch_on()
    (root / "net/ipv6/conf/eth0/accept_ra").unlink()
    forwarding.restore()


def test_a_host_without_ipv6_is_named_and_half_done_work_is_undone(root: Path) -> None:
    (root / "net/ipv6/conf/all/forwarding").unlink()
    forwarding = Forwarding(6, root=root)
    with pytest.raises(SystemSetupError, match=r"no setting net\.ipv6\.conf\.all\.forwarding"):
        forwarding.switch_on()
    forwarding.restore()
    assert read_sysctl("net/ipv6/conf/eth0/accept_ra", root=root) == "1"


def test_restore_without_switching_on_does_nothing(root: Path) -> None:
    before = everything(root)
    Forwarding(4, root=root).restore()
    assert everything(root) == before
