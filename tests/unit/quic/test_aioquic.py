"""The private names of aioquic: all there in the installed version, all listed, used nowhere else."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from aioquic.h3.connection import H3Connection
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.congestion.cubic import CubicCongestionControl
from aioquic.quic.congestion.reno import RenoCongestionControl
from aioquic.quic.connection import QuicConnection

import qtunnel.quic
from qtunnel.quic._aioquic import PRIVATE_NAMES, PrivateName

PACKAGE = Path(qtunnel.quic.__file__).parent
PRIVATE_MODULES = sorted(PACKAGE.glob("_aioquic_*.py"))


def instances() -> dict[str, list[Any]]:
    """Return an object or two for each owner in the table, far enough along to have all its attributes."""
    quic = QuicConnection(configuration=QuicConfiguration(is_client=True, alpn_protocols=["h3"]))
    quic.connect(("198.18.0.1", 1), 1.0)
    return {
        "QuicConnection": [quic],
        "QuicPacketRecovery": [quic._loss],
        "QuicPacketPacer": [quic._loss._pacer],
        "QuicCongestionControl": [
            CubicCongestionControl(max_datagram_size=1200),
            RenoCongestionControl(max_datagram_size=1200),
        ],
        "tls.Context": [quic.tls],
        "H3Connection": [H3Connection(quic)],
    }


def private_names_in(path: Path) -> set[str]:
    """Return all attributes and methods of a module's code that begin with one underscore."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "name", None)
        if isinstance(name, str) and name.startswith("_") and not name.startswith("__"):
            found.add(name)
    return found


@pytest.mark.parametrize("entry", PRIVATE_NAMES, ids=lambda entry: f"{entry.owner}.{entry.name}")
def test_the_installed_aioquic_has_every_private_name_we_use(entry: PrivateName) -> None:
    for instance in instances()[entry.owner]:
        assert hasattr(instance, entry.name), (
            f"this aioquic has no {entry.owner}.{entry.name}, which is needed to: {entry.reason}"
        )


def test_every_private_name_is_listed_once_and_with_a_reason() -> None:
    keys = [(entry.owner, entry.name) for entry in PRIVATE_NAMES]
    assert len(keys) == len(set(keys))
    assert all(entry.reason for entry in PRIVATE_NAMES)


def test_the_list_names_exactly_what_the_private_modules_touch() -> None:
    of_aioquic = {name for owner in instances().values() for each in owner for name in dir(each)}
    used = set().union(*(private_names_in(path) for path in PRIVATE_MODULES)) & of_aioquic
    listed = {entry.name for entry in PRIVATE_NAMES}
    assert used - listed == set()
    assert listed - used == set()


def test_no_attribute_of_our_connection_hides_one_of_aioquics() -> None:
    of_aioquic = set(dir(instances()["QuicConnection"][0]))
    assert private_names_in(PACKAGE / "connection.py") & of_aioquic == set()


def test_only_the_private_modules_reach_into_other_objects() -> None:
    for path in set(PACKAGE.glob("*.py")) - set(PRIVATE_MODULES):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and node.attr[:2] != "__":
                owner = node.value
                assert isinstance(owner, ast.Name), f"{path.name}:{node.lineno} {node.attr}"
                assert owner.id in ("self", "cls", "connection"), f"{path.name}:{node.lineno} {node.attr}"
