"""Sets the project up on a fresh machine: Debian packages, a virtual environment, the project in it.

Shared by `netns-lab/lab` and `tests/run`. Runs on a bare python3 (>= 3.11, standard library only) and is silent
and quick (milliseconds) when there is nothing to do. What was installed is remembered in a stamp inside the
virtual environment, so pip runs again only when the dependencies in pyproject.toml change.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import json
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

try:
    import tomllib
except ImportError:
    sys.exit(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}")

REPOSITORY: Final = Path(__file__).resolve().parent.parent
VENV: Final = REPOSITORY / ".venv"
PYTHON: Final = VENV / "bin" / "python"
STAMP: Final = VENV / "qtunnel-setup.json"

LAB_COMMANDS: Final = {
    "ip": "iproute2",
    "nft": "nftables",
    "iptables": "iptables",
    "iperf3": "iperf3",
    "ethtool": "ethtool",
    "tcpdump": "tcpdump",
    "traceroute": "traceroute",
    "ping": "iputils-ping",
    "curl": "curl",
}
"""Command needed, and the Debian package that has it."""


class SetupError(Exception):
    """The machine cannot be set up; the text says what to do by hand."""


def enter(script: str, *, groups: Sequence[str], commands: Mapping[str, str]) -> None:
    """Return inside the project's virtual environment with everything installed, or exit with a message.

    script is the calling file: it is started again with the virtual environment's Python if need be. groups are
    names from [dependency-groups] in pyproject.toml; commands maps a command to its Debian package.
    """
    try:
        with _locked():
            install_packages(commands)
            install_venv(groups)
    except SetupError as error:
        sys.exit(f"set-up failed: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    os.environ["PATH"] = _search_path(f"{VENV / 'bin'}:{os.environ.get('PATH', os.defpath)}")
    if Path(sys.prefix).resolve() != VENV.resolve():
        sys.stdout.flush()
        os.execv(PYTHON, [str(PYTHON), str(Path(script).resolve()), *sys.argv[1:]])


def install_packages(commands: Mapping[str, str]) -> None:
    """Install the Debian packages of the commands that are not there.

    Raises SetupError if something is missing and we are not root, have no apt-get, or apt-get failed.
    """
    missing = sorted({package for command, package in commands.items() if not _has_command(command)})
    if not _can_make_venv() and not PYTHON.exists():
        missing.append("python3-venv")
    if not missing:
        return
    by_hand = f"apt-get install --no-install-recommends {' '.join(missing)}"
    if os.geteuid() != 0:
        raise SetupError(f"needed: {' '.join(missing)}. Run this again as root (sudo), or run: sudo {by_hand}")
    if shutil.which("apt-get") is None:
        raise SetupError(f"needed: the Debian packages {' '.join(missing)}, and there is no apt-get here")
    with _step(f"installing {' '.join(missing)}"):
        if not _apt_install(missing):
            _run(["apt-get", "-q", "update"], env=_apt_environment(), fatal=False)
            if not _apt_install(missing):
                raise SetupError(f"apt-get could not install them; try by hand: {by_hand}")


def install_venv(groups: Sequence[str]) -> None:
    """Make .venv if it is not there or does not work, and install the project (editable) and the groups in it.

    Raises SetupError with what they printed if pip or venv failed.
    """
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        pyproject = tomllib.load(file)
    wanted = {"project": _fingerprint(pyproject)}
    wanted |= {group: _fingerprint(sorted(_group(pyproject, group))) for group in groups}
    stamp = _read_stamp()
    stale = [part for part, fingerprint in wanted.items() if stamp.get(part) != fingerprint]
    if not stale and PYTHON.exists():
        return
    _make_venv()
    requirements: list[str] = []
    for part in stale:
        requirements += ["--editable", str(REPOSITORY)] if part == "project" else _group(pyproject, part)
    with _step(f"installing Python packages into {VENV.name} ({', '.join(stale)})"):
        command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--no-input", *requirements]
        _run(command, env={"PIP_DISABLE_PIP_VERSION_CHECK": "1"}, as_owner=True)
    # Read again: two set-ups with different groups may follow one another.
    _write_stamp(_read_stamp() | {part: wanted[part] for part in stale})


def _group(pyproject: Mapping[str, Any], name: str) -> list[str]:
    """Return a dependency group's requirements (PEP 735); read here, as only pip >= 25.1 knows --group."""
    requirements: list[str] = []
    for entry in pyproject["dependency-groups"][name]:
        requirements += [entry] if isinstance(entry, str) else _group(pyproject, entry["include-group"])
    return requirements


def _fingerprint(value: Any) -> str:
    if isinstance(value, dict):  # the whole file: only what an installation depends on
        project = {
            key: value["project"].get(key) for key in ("version", "dependencies", "scripts", "requires-python")
        }
        value = [project, value.get("build-system"), value.get("tool", {}).get("setuptools")]
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _make_venv() -> None:
    """Leave a virtual environment at .venv that has pip, keeping one that someone else made and that works."""
    check = "import sys; assert sys.version_info >= (3, 11); assert sys.prefix != sys.base_prefix; import pip"
    if _succeeds([str(PYTHON), "-c", check]):
        return
    if _succeeds([str(PYTHON), "-c", check.rpartition(";")[0]]):  # it works but has no pip, as uv makes them
        if _succeeds([str(PYTHON), "-m", "ensurepip", "--default-pip"], as_owner=True):
            return
        raise SetupError(f"{VENV} has no pip and ensurepip does not work there; remove it and try again")
    if not _can_make_venv():
        raise SetupError("this Python has no ensurepip; install python3-venv (as root this is done for you)")
    what = "replacing the virtual environment, as it does not work," if VENV.exists() else "making"
    with _step(f"{what} {VENV.name} with Python {sys.version.split()[0]}"):
        _run([sys.executable, "-m", "venv", "--clear", str(VENV)], as_owner=True)


def _can_make_venv() -> bool:
    # python3-venv may have been installed by this very process, which the import system has not noticed.
    importlib.invalidate_caches()
    return importlib.util.find_spec("ensurepip") is not None


def _read_stamp() -> dict[str, str]:
    try:
        stamp = json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def _write_stamp(stamp: Mapping[str, str]) -> None:
    new = STAMP.with_suffix(".new")
    new.write_text(json.dumps(stamp, indent=1) + "\n")
    new.replace(STAMP)


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Let two set-ups of one checkout happen one after the other; the lock goes with the process."""
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _step(what: str) -> Iterator[None]:
    print(f"[set-up] {what} ...", flush=True)
    began = time.monotonic()
    yield
    print(f"[set-up] {what}: done in {time.monotonic() - began:.1f} s", flush=True)


def _search_path(path: str) -> str:
    """Add the system directories, which a user's PATH lacks on Debian."""
    parts = path.split(":")
    return ":".join(parts + [extra for extra in ("/usr/sbin", "/sbin") if extra not in parts])


def _has_command(command: str) -> bool:
    return shutil.which(command, path=_search_path(os.environ.get("PATH", os.defpath))) is not None


def _apt_environment() -> dict[str, str]:
    return {"DEBIAN_FRONTEND": "noninteractive"}


def _apt_install(packages: Sequence[str]) -> bool:
    command = [
        "apt-get",
        "-q",
        "-y",
        "--no-install-recommends",
        "-o",
        "DPkg::Lock::Timeout=300",
        "install",
        *packages,
    ]
    return _run(command, env=_apt_environment(), fatal=False)


def _owner() -> tuple[int, int]:
    """Whose files the checkout's are; with sudo in a user's checkout, pip must not leave root's files there."""
    stat = (VENV if VENV.exists() else REPOSITORY).stat()
    return stat.st_uid, stat.st_gid


@functools.cache
def _as_owner() -> tuple[dict[str, Any], dict[str, str]]:
    """Return what subprocess needs to run as the checkout's owner, and what changes in the environment."""
    uid, gid = _owner()
    if os.geteuid() != 0 or uid == 0:
        return {}, {}
    try:
        home = pwd.getpwuid(uid).pw_dir
    except KeyError:
        home = "/nonexistent"
    identity: dict[str, Any] = {"user": uid, "group": gid, "extra_groups": []}
    try:
        subprocess.run([sys.executable, "-c", ""], check=True, stderr=subprocess.DEVNULL, **identity)
    except (OSError, subprocess.CalledProcessError):
        return {}, {}  # this Python is root's alone
    return identity, {"HOME": home}


def _run(
    command: Sequence[str], *, env: Mapping[str, str] | None = None, fatal: bool = True, as_owner: bool = False
) -> bool:
    """Run a command without input, quietly; on failure show what it printed (fatal: raise SetupError)."""
    identity, changed = _as_owner() if as_owner else ({}, {})
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | changed | dict(env or {}),
            text=True,
            errors="replace",
            check=False,
            **identity,
        )
    except OSError as error:
        raise SetupError(f"{command[0]}: {error}") from error
    if done.returncode == 0:
        return True
    if fatal:
        last = "\n".join(done.stdout.splitlines()[-15:])
        raise SetupError(f"{' '.join(command[:6])} ended with code {done.returncode}:\n{last}")
    return False


def _succeeds(command: Sequence[str], *, as_owner: bool = False) -> bool:
    try:
        return _run(command, fatal=False, as_owner=as_owner)
    except SetupError:
        return False
