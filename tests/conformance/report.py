"""Makes docs/conformance.md: each requirement beside the tests that name it.

    python tests/conformance/report.py                 write the page, print the count
    python tests/conformance/report.py --check         write nothing; fail when the page is out of date, a MUST
                                                       that binds us is unmet, or a name or entry is wrong
    python tests/conformance/report.py --check --allow-unmet    the same, but for unmet ones

The catalogue is requirements.toml beside this file. A test names the requirement it holds in its own name:
`test_cip_27_prefix_length_above_32_is_refused`, or several, `test_cip_27_cip_28_...`. A test that is always
skipped, or expected to fail, holds nothing.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

LEVELS = ("MUST", "SHOULD", "MAY", "note", "definition")
BINDING_SIDES = ("client", "server", "both")
SIDES = (*BINDING_SIDES, "intermediary")
STATUSES = ("not-applicable", "deviation")
TABLE_HEAD = ("| id | section | level | side | requirement | tests |", "|---|---|---|---|---|---|")
ID = re.compile(r"[A-Z][A-Z0-9]*-\d{2}")


class CatalogueError(Exception):
    """requirements.toml says something that cannot be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One entry of the catalogue. level: one of LEVELS, or two joined by " and "."""

    id: str
    rfc: str
    section: str
    level: str
    side: str
    text: str
    status: str | None = None
    reason: str | None = None
    design: str | None = None

    def __post_init__(self) -> None:
        if not ID.fullmatch(self.id):
            raise CatalogueError(f"{self.id!r} is no id")
        for name, value, allowed in (
            *(("level", each, LEVELS) for each in self.level.split(" and ")),
            ("side", self.side, SIDES),
            ("status", self.status, (None, *STATUSES)),
        ):
            if value not in allowed:
                raise CatalogueError(f"{self.id}: {name} {value!r} is none of {allowed}")
        if self.status == "not-applicable" and not self.reason:
            raise CatalogueError(f"{self.id}: not-applicable without a reason")
        if (self.status == "deviation") != (self.design is not None):
            raise CatalogueError(f"{self.id}: status deviation and design go together")
        if self.status is None and self.reason is not None:
            raise CatalogueError(f"{self.id}: a reason without a status")

    @property
    def is_binding_must(self) -> bool:
        """Whether one of our two ends has to do this."""
        return "MUST" in self.level.split(" and ") and self.side in BINDING_SIDES


@dataclass(frozen=True, slots=True)
class NamedTest:
    """A test function, and the file it is in relative to the project."""

    name: str
    file: str


@dataclass(slots=True)
class Report:
    """The catalogue joined with the tests. problems: everything that is wrong, in words."""

    requirements: list[Requirement]
    tests: dict[str, list[NamedTest]]
    problems: list[str] = field(default_factory=list)

    def of_status(self, status: str) -> list[Requirement]:
        """Return the requirements declared to be of a status."""
        return [each for each in self.requirements if each.status == status]

    @property
    def tested(self) -> list[Requirement]:
        """Requirements that a test names."""
        return [each for each in self.requirements if each.id in self.tests]

    @property
    def unmet(self) -> list[Requirement]:
        """What binds us as a MUST and has neither a test nor a declared status."""
        return [
            each
            for each in self.requirements
            if each.is_binding_must and each.status is None and each.id not in self.tests
        ]

    def count(self) -> str:
        """Return the one line that sums it up."""
        return (
            f"{len(self.requirements)} requirements, {len(self.tested)} tested, "
            f"{len(self.of_status('not-applicable'))} not applicable, "
            f"{len(self.of_status('deviation'))} deviations, {len(self.unmet)} unmet MUST"
        )


def load_requirements(path: Path) -> list[Requirement]:
    """Read the catalogue.

    Raises: CatalogueError naming the entry.
    """
    with path.open("rb") as file:
        entries = tomllib.load(file)["requirement"]
    requirements = []
    for entry in entries:
        try:
            requirements.append(Requirement(**entry))
        except TypeError as error:
            raise CatalogueError(f"{entry.get('id')}: {error}") from error
    ids = [each.id for each in requirements]
    if len(ids) != len(set(ids)):
        raise CatalogueError(f"twice: {sorted({each for each in ids if ids.count(each) > 1})}")
    return requirements


def ids_in_name(name: str, prefixes: set[str]) -> list[str]:
    """Return the ids a test's name cites, in order: test_cip_7_h3_01_x gives CIP-07 and H3-01."""
    pattern = rf"(?<=_)({'|'.join(sorted(prefixes))})_(\d{{1,2}})(?=_|$)"
    return [f"{prefix}-{int(number):02}" for prefix, number in re.findall(pattern, name.upper())]


def find_tests(tests: Path) -> Iterator[NamedTest]:
    """Yield every test function below a directory that can fail."""
    for path in sorted(tests.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith("test_"):
                continue
            marks = " ".join(ast.unparse(each) for each in node.decorator_list)
            if not re.search(r"\bmark\.(skip\b|xfail\b)", marks):
                yield NamedTest(node.name, path.relative_to(tests.parent).as_posix())


def make_report(root: Path) -> Report:
    """Join root/tests/conformance/requirements.toml with the tests below root/tests."""
    requirements = load_requirements(root / "tests" / "conformance" / "requirements.toml")
    known = {each.id for each in requirements}
    prefixes = {each.partition("-")[0] for each in known}
    report = Report(requirements, {})
    for test in find_tests(root / "tests"):
        for each in ids_in_name(test.name, prefixes):
            if each in known:
                report.tests.setdefault(each, []).append(test)
            else:
                report.problems.append(f"{test.file}: {test.name} names {each}, which is not in the catalogue")
    for each in report.of_status("deviation"):
        page = root / str(each.design)
        if not page.is_file() or page.parent != root / "docs" / "design":
            report.problems.append(f"{each.id}: {each.design} is no file in docs/design")
        elif each.id not in page.read_text(encoding="utf-8"):
            report.problems.append(f"{each.id}: {each.design} does not argue it (the id is not in it)")
    return report


def render(report: Report) -> str:
    """Return the page."""
    lines = [
        "# Conformance",
        "",
        "Generated by `python tests/conformance/report.py`; not to be edited. The requirements are in",
        "[requirements.toml](../tests/conformance/requirements.toml), in our own words: the RFC is what counts.",
        "",
        f"**{report.count()}.**",
        "",
    ]
    if report.unmet:
        lines += ["Unmet: " + ", ".join(each.id for each in report.unmet) + ".", ""]
    untested = [each.id for each in report.requirements if each.status is None and each.id not in report.tests]
    others = [each for each in untested if each not in {unmet.id for unmet in report.unmet}]
    if others:
        lines += ["No MUST, and held by no test: " + ", ".join(others) + ".", ""]
    for rfc in dict.fromkeys(each.rfc for each in report.requirements):
        lines += [
            f"## {rfc}",
            "",
            "| id | section | level | side | requirement | tests |",
            "|---|---|---|---|---|---|",
        ]
        lines += [_row(each, report.tests.get(each.id, [])) for each in report.requirements if each.rfc == rfc]
        lines.append("")
    return "\n".join(lines)


def _row(requirement: Requirement, tests: list[NamedTest]) -> str:
    cells = [f"[{test.name.removeprefix('test_')}](../{test.file})" for test in dict.fromkeys(tests)]
    if requirement.status == "not-applicable":
        cells.append(f"not applicable: {requirement.reason}")
    elif requirement.status == "deviation":
        cells.append(
            f"deviation: [{Path(str(requirement.design)).stem}](design/{Path(str(requirement.design)).name})"
        )
    elif not cells:
        cells.append("**none**" if requirement.is_binding_must else "none")
    text = requirement.text.replace("|", "\\|")
    columns = (requirement.id, requirement.section, requirement.level, requirement.side, text, "<br>".join(cells))
    return f"| {' | '.join(columns)} |"


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Write or check the page. Return the exit code: 0 good, 1 not."""
    parser = argparse.ArgumentParser(prog="report.py", description="Make or check docs/conformance.md.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail on anything wrong")
    parser.add_argument("--allow-unmet", action="store_true", help="an unmet MUST is no failure")
    options = parser.parse_args(arguments)
    try:
        report = make_report(root)
    except CatalogueError as error:
        print(f"requirements.toml: {error}", file=sys.stderr)
        return 1
    page = root / "docs" / "conformance.md"
    text = render(report)
    problems = list(report.problems)
    if not options.check:
        page.write_text(text, encoding="utf-8")
    elif not page.is_file() or page.read_text(encoding="utf-8") != text:
        problems.append("docs/conformance.md is out of date: run python tests/conformance/report.py")
    if not options.allow_unmet:
        problems += [f"unmet: {each.id} ({each.rfc} {each.section}) {each.text}" for each in report.unmet]
    print(report.count())
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
