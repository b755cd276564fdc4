"""The page about settings says what the program does."""

from __future__ import annotations

import re
from pathlib import Path

from qtunnel.cli.configuration_page import configuration_page
from qtunnel.cli.flag_tables import CONNECT_FLAGS, SERVE_FLAGS
from qtunnel.cli.load import ServeOptions, Settings, build, parse_toml
from qtunnel.config import ServerConfig

PAGE = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"


def test_the_page_is_the_one_made_of_the_tables() -> None:
    assert PAGE.read_text(encoding="utf-8") == configuration_page()


def test_every_setting_has_a_row() -> None:
    rows = [line for line in configuration_page().splitlines() if line.startswith("| `")]
    assert len(rows) == len(SERVE_FLAGS) + len(CONNECT_FLAGS)
    assert all(line.count(" | ") == 3 for line in rows)


def test_its_example_is_a_file_that_works() -> None:
    match = re.search(r"```toml\n(.*?)```", configuration_page(), re.DOTALL)
    assert match is not None
    settings = Settings()
    settings.add({"pool4": "10.7.0.1/24"}, "defaults")
    settings.add(parse_toml(match[1], "example"), "example")
    options, config = build(settings, (ServeOptions, ServerConfig))
    assert options.public_name == "vpn.example.net"
    assert config.quic.path_mtu == 1500
