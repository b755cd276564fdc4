"""Kernel settings, in a folder that stands for /proc/sys."""

from __future__ import annotations

from pathlib import Path

import pytest

from qtunnel.errors import SystemSetupError
from qtunnel.linux.sysctl import command_to_set, read_sysctl, sysctl_names, write_sysctl

KEY = "net/ipv4/conf/eth0/rp_filter"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / KEY
    path.parent.mkdir(parents=True)
    path.write_text("1\n")
    return tmp_path


def test_a_setting_is_read_without_its_line_end(root: Path) -> None:
    assert read_sysctl(KEY, root=root) == "1"


def test_a_missing_setting_is_none(root: Path) -> None:
    assert read_sysctl("net/ipv4/nothing", root=root) is None


def test_writing_changes_it(root: Path) -> None:
    write_sysctl(KEY, "2", root=root)
    assert (root / KEY).read_text().startswith("2")


def test_writing_a_missing_setting_says_so_and_makes_no_file(root: Path) -> None:
    with pytest.raises(SystemSetupError, match=r"no setting net\.ipv4\.nothing"):
        write_sysctl("net/ipv4/nothing", "2", root=root)
    assert not (root / "net/ipv4/nothing").exists()


def test_refusal_names_the_command_that_would_set_it(root: Path) -> None:
    (root / "net/ipv4/folder").mkdir()  # opening it for writing fails for root as well
    with pytest.raises(SystemSetupError, match=r"sysctl -w net\.ipv4\.folder=2"):
        write_sysctl("net/ipv4/folder", "2", root=root)


def test_names_lists_a_folder(root: Path) -> None:
    assert sysctl_names("net/ipv4/conf", root=root) == ["eth0"]
    assert sysctl_names("net/ipv6/conf", root=root) == []


def test_an_interface_name_with_a_dot_is_spelt_with_slashes() -> None:
    assert command_to_set(KEY, "2") == "sysctl -w net.ipv4.conf.eth0.rp_filter=2"
    dotted = "net/ipv4/conf/eth0.100/rp_filter"
    assert command_to_set(dotted, "2") == f"sysctl -w {dotted}=2"
