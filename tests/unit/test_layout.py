"""The shape of the package: a module is found by its name, and its test by the module's."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from pathlib import Path

import pytest

import qtunnel

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "qtunnel"

FORBIDDEN_NAMES = {"types", "utils", "util", "common", "helpers", "helper", "manager", "misc", "base_utils"}
"""A name that fits anything finds nothing."""

TESTED_ELSEWHERE: dict[str, str] = {
    # Over real sockets, and with a real TUN.
    "aio.attempt": "tests/library/test_connect.py",
    "aio.client": "tests/library/test_connect.py",
    "aio.client_host": "tests/linux/test_undoing.py",
    "aio.link_changes": "tests/linux/test_links.py",
    "aio.server": "tests/library/test_connect.py",
    "aio.server_host": "tests/linux/test_undoing.py",
    "aio.tunnel_host": "tests/linux/test_undoing.py",
    "api": "tests/library/test_start_stop.py",
    "burst": "tests/sim/test_pair.py",
    "drops": "tests/unit/test_debugging_page.py",
    # A client or a server is tested as a whole, against the other.
    "tunnel.client": "tests/sim/test_tunnel.py",
    "tunnel.client_session": "tests/sim/test_tunnel.py",
    "tunnel.events": "tests/sim/test_tunnel.py",
    "tunnel.ip_stream": "tests/sim/test_tunnel.py",
    "tunnel.server": "tests/sim/test_tunnel.py",
    "tunnel.server_session": "tests/sim/test_tunnel.py",
}
"""Modules without a test file of their own name, and where they are tested instead."""


def modules() -> list[Path]:
    found = [path for path in PACKAGE.rglob("*.py") if path.stem not in ("__init__", "__main__")]
    return sorted(found)


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def places_for_test_of(path: Path) -> list[Path]:
    """Return where the test of a module may be, the usual place first."""
    relative = path.relative_to(PACKAGE)
    name = f"test_{path.stem.lstrip('_')}.py"
    places = [ROOT / "tests" / "unit" / relative.parent / name]
    if relative.parts[0] == "linux":
        places.append(ROOT / "tests" / "linux" / name)
    if dotted(path) in TESTED_ELSEWHERE:
        places.append(ROOT / TESTED_ELSEWHERE[dotted(path)])
    return places


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_every_module_has_its_test_file(path: Path) -> None:
    places = places_for_test_of(path)
    wanted = " or ".join(str(place.relative_to(ROOT)) for place in places)
    assert any(place.is_file() for place in places), f"{dotted(path)} is tested by no {wanted}"


def test_the_map_of_tests_elsewhere_has_no_stale_entries() -> None:
    names = {dotted(path) for path in modules()}
    assert set(TESTED_ELSEWHERE) <= names
    assert [place for place in TESTED_ELSEWHERE.values() if not (ROOT / place).is_file()] == []


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_no_module_or_package_has_a_name_that_fits_anything(path: Path) -> None:
    assert not FORBIDDEN_NAMES & set(dotted(path).split("."))


@pytest.mark.parametrize(
    "path", [*modules(), *PACKAGE.rglob("__init__.py")], ids=lambda p: str(p.relative_to(ROOT))
)
def test_every_module_says_in_a_docstring_what_it_holds(path: Path) -> None:
    assert path.read_text(encoding="utf-8").lstrip().startswith('"""')


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_all_of_a_module_names_only_what_it_has(path: Path) -> None:
    module = importlib.import_module(f"qtunnel.{dotted(path)}")
    missing = [name for name in getattr(module, "__all__", []) if not hasattr(module, name)]
    assert missing == []


def names_for_type_checkers() -> set[str]:
    """Return what `if TYPE_CHECKING:` imports into qtunnel: at run time it is loaded at first use."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def test_all_of_qtunnel_equals_what_it_exports() -> None:
    assert {"__version__", *names_for_type_checkers()} == set(qtunnel.__all__)
    assert len(qtunnel.__all__) == len(set(qtunnel.__all__))
    assert set(dir(qtunnel)) == set(qtunnel.__all__)


@pytest.mark.parametrize("name", qtunnel.__all__)
def test_every_exported_name_can_be_had(name: str) -> None:
    value = getattr(qtunnel, name)
    assert getattr(value, "__module__", "qtunnel.").startswith(("qtunnel.", "collections", "typing"))


def version_tuple(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def test_version_is_consistent_with_changelog() -> None:
    """The newest released heading is this version, or this version is still under Unreleased."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[([^\]]+)\]", changelog, flags=re.MULTILINE)
    assert headings[:1] == ["Unreleased"]
    released = headings[1:]
    assert released == sorted(released, key=version_tuple, reverse=True)
    if project["version"] not in released:
        assert not released or version_tuple(project["version"]) > version_tuple(released[0])
        unreleased = changelog.partition("## [Unreleased]")[2].partition("\n## [")[0]
        assert re.search(r"^- ", unreleased, flags=re.MULTILINE), "nothing is written under Unreleased"
    assert qtunnel.__version__ == project["version"]
