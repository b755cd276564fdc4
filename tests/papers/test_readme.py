"""What README, docs and units tell people to type or to run exists, and does what they say."""

from __future__ import annotations

import re
import secrets
import shlex
import subprocess
import sys
import tempfile
import tomllib
from asyncio import create_subprocess_exec
from collections.abc import Iterator
from ipaddress import IPv4Interface, IPv6Interface
from itertools import chain
from pathlib import Path

import click
import pytest

import qtunnel
from qtunnel.cli.main import program

ROOT = Path(__file__).resolve().parents[2]
PAPERS = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("docs/design/*.md"),
        *ROOT.glob("packaging/systemd/*.service"),
    ]
)
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")


def commands() -> Iterator[tuple[str, str]]:
    """Yield what is indented or set as code in the papers and begins with qtunnel."""
    for paper in PAPERS:
        text = re.sub(r"^```.*?^```$", "", paper.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
        services = [line.partition("ExecStart=")[2] for line in text.splitlines()]
        for piece in [*lines, *services, *re.findall(r"`([^`]+)`", text)]:
            command = " ".join(re.split("[#<>]", piece)[0].removeprefix("sudo ").split())
            if re.match(r"qtunnel [a-z]+", command) and not command.endswith("."):
                yield paper.name, command


@pytest.mark.parametrize("command", sorted({command for _, command in commands()}))
def test_command_in_the_papers_exists_with_all_its_options(command: str) -> None:
    words = shlex.split(command)[1:]
    group: click.Command = program
    context = click.Context(group)
    while words and isinstance(group, click.Group) and not words[0].startswith("-"):
        name = words.pop(0)
        found = group.get_command(context, name)
        assert found is not None, f"there is no qtunnel {name}"
        group = found
    options = {spelling for each in group.params for spelling in [*each.opts, *each.secondary_opts]} | {"--help"}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= options


OTHERS_OPTIONS = {"--long", "--run-slow", "--seed", "--insecure"}
"""Of pytest; and the one that there is not."""


def test_every_option_named_in_the_papers_is_one_of_some_command() -> None:
    names = program.list_commands(click.Context(program))
    found = [program.get_command(click.Context(program), name) for name in names]
    queue, options = [each for each in found if each is not None], set(OTHERS_OPTIONS)
    while queue:
        command = queue.pop()
        options |= {spelling for each in command.params for spelling in [*each.opts, *each.secondary_opts]}
        if isinstance(command, click.Group):
            queue += command.commands.values()
    named = {
        (paper.name, option)
        for paper in PAPERS
        for option in re.findall(r"`(--[a-z0-9-]+)", paper.read_text(encoding="utf-8"))
    }
    assert len(named) > 10
    assert {(paper, option) for paper, option in named if option not in options} == set()


def test_the_papers_do_name_commands() -> None:
    assert {"README.md", "debugging.md"} <= {paper for paper, _ in commands()}


@pytest.mark.parametrize("paper", [each for each in PAPERS if each.suffix == ".md"], ids=lambda path: path.name)
def test_links_between_papers_lead_somewhere(paper: Path) -> None:
    for target in LINK.findall(paper.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        file = (paper.parent / path).resolve() if path else paper
        assert file.exists(), f"{paper.name}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}


def test_every_dependency_is_explained_with_its_pin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "design" / "0002-dependencies.md").read_text(encoding="utf-8")
    every = [*project["project"]["dependencies"], *chain(*project["dependency-groups"].values())]
    pins = [re.fullmatch(r"([a-z0-9-]+)(.*)", each) for each in every if isinstance(each, str)]
    names = [(pin[1], pin[2]) for pin in pins if pin is not None]
    assert len(names) == len(every)
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    missing = [
        name + pin
        for name, pin in names
        if not any(name in row.split("|")[1] and f"`{pin}`" in row for row in rows)
    ]
    assert missing == []


def test_every_module_named_in_the_papers_exists() -> None:
    missing = []
    for paper in PAPERS:
        for name in re.findall(r"`([a-z0-9_/.-]+\.(?:py|toml))(?=[` ])", paper.read_text(encoding="utf-8")):
            places = [ROOT / name, ROOT / "qtunnel" / name, paper.parent / name]
            if not name.startswith("/") and not any(place.exists() for place in places):
                missing.append(f"{paper.name}: {name}")
    assert missing == []


@pytest.mark.parametrize("name", ["netns-lab/lab", "tests/run"])
def test_both_commands_of_the_first_screen_can_be_called(name: str) -> None:
    assert f"sudo {name}" in (ROOT / "README.md").read_text(encoding="utf-8")[:1500]
    assert (ROOT / name).stat().st_mode & 0o111


async def test_the_library_example_of_the_readme_runs_as_it_stands() -> None:
    (example,) = re.findall(
        r"^```python\n(.+?)^```$", (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    token = secrets.token_urlsafe(32)
    with tempfile.TemporaryDirectory() as state:
        identity = qtunnel.make_identity(Path(state), server_name="readme.qtunnel.invalid")
    config = qtunnel.ServerConfig(
        listen=("127.0.0.1",), port=0, pool4=IPv4Interface("10.98.0.1/24"), pool6=IPv6Interface("fd98::1/64")
    )
    users = [qtunnel.User(name="alice", token_sha256=qtunnel.token_digest(token))]
    async with qtunnel.serve(config, identity=identity, users=users) as server:
        link = identity.join_link("127.0.0.1", server.port, "alice", token).text()
        process = await create_subprocess_exec(
            sys.executable,
            "-c",
            example,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
        )
        output, errors = await process.communicate(link.encode())
    assert errors.decode() == ""
    assert process.returncode == 0
    lines = output.decode().splitlines()
    assert lines[0].startswith("connected: 10.98.0.2/32 fd98::2/128 packets of up to ")
    assert lines[1:] == ["the server answered with 104 bytes"]
