"""The text for nft, without nft; that it does what it says is tested in tests/linux/test_host.py."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.errors import SystemSetupError
from qtunnel.linux.nft import Masquerade, Nft, is_our_table, table_name, table_text


def script(tmp_path: Path, text: str) -> str:
    path = tmp_path / "nft"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_pools_are_hidden_on_every_interface_but_the_tun() -> None:
    text = table_text("qtun0", Masquerade(pools=(ip_network("10.77.1.0/24"), ip_network("fd00:1::/64"))))
    assert 'oifname != "qtun0" ip saddr 10.77.1.0/24' in text
    assert 'oifname != "qtun0" ip6 saddr fd00:1::/64' in text
    assert text.count("masquerade") == 2


def test_a_lan_is_hidden_on_the_tun_after_its_exceptions() -> None:
    text = table_text("qtun0", Masquerade(lan=True, lan_exceptions=(ip_network("192.168.7.0/24"),)))
    lines = [line.strip() for line in text.splitlines()]
    exception = lines.index('oifname "qtun0" ip saddr 192.168.7.0/24 counter accept')
    assert exception < lines.index('oifname "qtun0" counter masquerade')


def test_the_table_replaces_one_of_its_name_in_one_go() -> None:
    lines = table_text("qtun0", Masquerade()).splitlines()
    assert lines[:3] == [
        "add table inet qtunnel_qtun0",
        "delete table inet qtunnel_qtun0",
        "table inet qtunnel_qtun0 {",
    ]
    assert "masquerade" not in "".join(lines)


def test_clamping_covers_both_directions() -> None:
    text = table_text("qtun0", Masquerade(clamp_mss=True))
    assert text.count("maxseg size set rt mtu") == 2
    assert 'iifname "qtun0"' in text
    assert 'oifname "qtun0"' in text
    assert "maxseg" not in table_text("qtun0", Masquerade())


@given(one=st.text("ab_-.09:é", min_size=1, max_size=15), other=st.text("ab_-.09:é", min_size=1, max_size=15))
def test_each_tun_has_a_table_name_of_its_own_that_nft_can_read(one: str, other: str) -> None:
    name = table_name(one)
    assert is_our_table(name)
    assert name.replace("_", "").isalnum()
    assert name.isascii()
    assert (name == table_name(other)) == (one == other)


def test_missing_command_says_what_to_install() -> None:
    nft = Nft("no-such-command")
    assert not nft.is_available
    with pytest.raises(SystemSetupError, match="apt install nftables"):
        nft.make_table("qtun0", Masquerade())


def test_refusal_quotes_the_first_line_of_the_reason(tmp_path: Path) -> None:
    nft = Nft(script(tmp_path, "echo 'Error: no nf_tables here' >&2; echo more >&2; exit 1"))
    with pytest.raises(SystemSetupError, match="no nf_tables here") as caught:
        nft.remove_table("qtunnel_x")
    assert "more" not in str(caught.value)


def test_refusal_without_a_reason_gives_the_exit_code(tmp_path: Path) -> None:
    with pytest.raises(SystemSetupError, match="exit code 3"):
        Nft(script(tmp_path, "exit 3")).remove_table("qtunnel_x")


def test_our_tables_are_told_from_others(tmp_path: Path) -> None:
    nft = Nft(script(tmp_path, "printf 'table inet filter\\ntable inet qtunnel_qtun0\\ntable inet qtunnels\\n'"))
    assert nft.our_tables() == ["qtunnel_qtun0"]
