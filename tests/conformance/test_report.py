"""The report is a judge, so it is tested like one: everything that must make it fail does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.report import ROOT, CatalogueError, ids_in_name, load_requirements, main, make_report

ENTRY = """
[[requirement]]
id = "{id}"
rfc = "RFC 1"
section = "§2"
level = "{level}"
side = "{side}"
text = "Do | it."
{more}
"""


class Project:
    """A small project in a directory, with a catalogue and tests."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for each in ("tests/conformance", "docs/design"):
            (root / each).mkdir(parents=True)
        self.catalogue = root / "tests" / "conformance" / "requirements.toml"
        self.page = root / "docs" / "conformance.md"

    def require(self, id: str, level: str = "MUST", side: str = "both", more: str = "") -> None:
        with self.catalogue.open("a", encoding="utf-8") as file:
            file.write(ENTRY.format(id=id, level=level, side=side, more=more))

    def test(self, name: str, decorator: str = "") -> None:
        with (self.root / "tests" / "test_it.py").open("a", encoding="utf-8") as file:
            file.write(f"{decorator}\ndef {name}(): pass\n")

    def run(self, *arguments: str) -> int:
        return main(list(arguments), self.root)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_ids_are_read_from_a_name_one_or_several_anywhere() -> None:
    prefixes = {"CIP", "H3"}
    assert ids_in_name("test_cip_27_it_holds", prefixes) == ["CIP-27"]
    assert ids_in_name("test_cip_27_cip_28_h3_1_it_holds", prefixes) == ["CIP-27", "CIP-28", "H3-01"]
    assert ids_in_name("test_an_h3_connection_of_cip_7", prefixes) == ["CIP-07"]
    assert ids_in_name("test_scip_27_and_h3_404_are_none", prefixes) == []


def test_a_met_requirement_passes_and_stands_on_the_page(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.require("CIP-27")
    project.test("test_cip_27_it_holds")
    assert project.run() == 0
    assert project.run("--check") == 0
    line = "1 requirements, 1 tested, 0 not applicable, 0 deviations, 0 unmet MUST"
    assert capsys.readouterr().out.splitlines() == [line, line]
    page = project.page.read_text(encoding="utf-8")
    assert line in page
    assert "| CIP-27 | §2 | MUST | both | Do \\| it. | [cip_27_it_holds](../tests/test_it.py) |" in page


@pytest.mark.parametrize("side", ["client", "server", "both"])
def test_an_unmet_must_fails_unless_allowed(project: Project, side: str) -> None:
    project.require("CIP-27", side=side)
    assert project.run() == 1
    assert project.run("--check") == 1
    assert project.run("--check", "--allow-unmet") == 0


@pytest.mark.parametrize("level", ["SHOULD", "MAY", "note", "definition"])
def test_only_a_must_has_to_be_met(project: Project, level: str) -> None:
    project.require("CIP-27", level=level)
    assert project.run() == 0


def test_a_must_beside_a_should_and_one_that_binds_nobody_here(project: Project) -> None:
    project.require("CIP-27", level="MUST", side="intermediary")
    assert project.run() == 0
    project.require("CIP-28", level="MUST and SHOULD")
    assert project.run() == 1


@pytest.mark.parametrize("decorator", ["@pytest.mark.skip(reason='x')", "@pytest.mark.xfail"])
def test_a_test_that_cannot_fail_holds_nothing(project: Project, decorator: str) -> None:
    project.require("CIP-27")
    project.test("test_cip_27_it_holds", f"import pytest\n{decorator}")
    assert project.run() == 1


def test_a_test_that_names_an_unknown_id_fails(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.require("CIP-27")
    project.test("test_cip_27_it_holds")
    project.test("test_cip_98_it_holds")
    assert project.run("--allow-unmet") == 1
    assert "names CIP-98" in capsys.readouterr().err


def test_a_page_out_of_date_fails_the_check(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.require("CIP-27")
    project.test("test_cip_27_it_holds")
    assert project.run("--check") == 1
    assert not project.page.exists()
    project.run()
    project.test("test_cip_27_it_holds_again")
    assert project.run("--check") == 1
    assert "out of date" in capsys.readouterr().err


def test_not_applicable_counts_as_met_and_may_have_a_test_that_shows_why(project: Project) -> None:
    project.require("CIP-27", more='status = "not-applicable"\nreason = "There is none."')
    assert project.run() == 0
    assert "not applicable: There is none." in project.page.read_text(encoding="utf-8")
    project.test("test_cip_27_it_is_refused")
    assert project.run() == 0
    assert "[cip_27_it_is_refused](../tests/test_it.py)<br>not applicable: There" in project.page.read_text(
        "utf-8"
    )


def test_a_deviation_needs_a_page_in_design_that_argues_it(project: Project) -> None:
    design = "docs/design/0001-why.md"
    project.require("CIP-27", more=f'status = "deviation"\ndesign = "{design}"')
    assert project.run() == 1
    (project.root / design).write_text("nothing about it", encoding="utf-8")
    assert project.run() == 1
    (project.root / design).write_text("CIP-27: because", encoding="utf-8")
    assert project.run() == 0
    assert "deviation: [0001-why](design/0001-why.md)" in project.page.read_text(encoding="utf-8")


def test_a_deviation_argued_outside_docs_design_fails(project: Project) -> None:
    project.require("CIP-27", more='status = "deviation"\ndesign = "docs/why.md"')
    (project.root / "docs" / "why.md").write_text("CIP-27", encoding="utf-8")
    assert project.run() == 1


@pytest.mark.parametrize(
    "entry",
    [
        {"id": "CIP-7"},
        {"id": "CIP-07", "level": "must"},
        {"id": "CIP-07", "level": "MUST or MAY"},
        {"id": "CIP-07", "side": "peer"},
        {"id": "CIP-07", "more": 'status = "done"'},
        {"id": "CIP-07", "more": 'status = "not-applicable"'},
        {"id": "CIP-07", "more": 'status = "deviation"'},
        {"id": "CIP-07", "more": 'reason = "none"'},
        {"id": "CIP-07", "more": 'design = "docs/design/0001-why.md"'},
        {"id": "CIP-07", "more": 'colour = "red"'},
    ],
    ids=str,
)
def test_a_wrong_entry_is_refused_by_name(
    project: Project, entry: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    project.require(**entry)
    assert project.run("--allow-unmet") == 1
    assert entry["id"] in capsys.readouterr().err


def test_an_id_twice_is_refused(project: Project) -> None:
    project.require("CIP-07")
    project.require("CIP-07")
    with pytest.raises(CatalogueError, match="CIP-07"):
        load_requirements(project.catalogue)


def test_the_catalogue_of_this_project_is_sound_and_every_test_names_what_is_in_it() -> None:
    report = make_report(ROOT)
    assert report.problems == []
    assert len(report.requirements) >= 182
