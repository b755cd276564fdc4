"""From TOML text and flags to configuration dataclasses, with every bad setting reported at once.

pydantic checks the standard library's dataclasses of qtunnel.config as they are; unknown keys are errors. Each
problem is one line: where it was said, the key's path, the value found, and what is allowed.
"""

from __future__ import annotations

import difflib
import functools
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from pathlib import Path
from types import NoneType
from typing import Any, Final, TypeVar, cast, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from qtunnel.cli.logs import LogLevel
from qtunnel.config import ClientConfig, HostConfig, LabConfig, QuicConfig, RouteMode, ServerConfig
from qtunnel.errors import ConfigError
from qtunnel.state.paths import SERVER_INSTANCE

__all__ = ["ConnectOptions", "ServeOptions", "Settings", "build", "parse_toml", "read_toml_file"]

MAX_TOML: Final = 1024 * 1024
MAX_ROUNDS: Final = 50
_SECRET_KEYS: Final = frozenset({"token"})
_ALLOWED: Final[dict[type, str]] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text in quotes",
    IPv4Network: "a network such as 10.0.0.0/8, without host bits",
    IPv6Network: "a network such as fd00::/8, without host bits",
    IPv4Interface: "an address and length such as 10.77.1.1/24",
    IPv6Interface: "an address and length such as fd77::1/64",
    IPv4Address: "an address such as 192.0.2.1",
    IPv6Address: "an address such as 2001:db8::1",
}
_DEFAULT_ROUTES: Final = ("0.0.0.0/0", "::/0")
_STRICT: Final = ConfigDict(extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)

_T = TypeVar("_T")
_Path = tuple[str, ...]
"""Where a setting stands: (key,) or (table, key). Not joined by dots: a key in quotes may contain some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What `serve` is told besides the ServerConfig. first_user: made when there are no users yet."""

    state_dir: str | None = None
    public_name: str | None = None
    first_user: str = "user1"
    name: str = SERVER_INSTANCE
    use_tun: bool = True
    log_level: LogLevel | None = None
    log_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """What `connect` is told besides the ClientConfig. name: for the control socket; None: the profile's."""

    name: str | None = None
    use_tun: bool = True
    log_level: LogLevel | None = None
    log_file: str | None = None


for _kind in (QuicConfig, HostConfig, LabConfig, ClientConfig, ServerConfig, ServeOptions, ConnectOptions):
    with_config(_STRICT)(_kind)
_ADAPTERS: Final[dict[type, TypeAdapter[Any]]] = {
    kind: TypeAdapter(kind) for kind in (ClientConfig, ServerConfig, ServeOptions, ConnectOptions)
}


@dataclass(slots=True)
class Settings:
    """Settings as said so far, later ones over earlier ones, with where each was said."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[_Path, str] = field(default_factory=dict)

    def add(self, values: Mapping[str, Any], origin: str, spellings: Mapping[str, str] | None = None) -> None:
        """Lay values over what is there; tables are merged, anything else is replaced.

        origin: such as a file's name. spellings: for flags, how each key is said on the command line.
        """
        for path, value in _leaves(values):
            self._put(path, value)
            self.origins[path] = (spellings or {}).get(".".join(path), origin)

    def refuse_lab(self) -> None:
        """Raise when cures are to be switched off, which only --lab allows.

        Raises:
            ConfigError: there is a table [lab].
        """
        if "lab" in self.values:
            origin = next((origin for path, origin in self.origins.items() if path[0] == "lab"), "")
            raise ConfigError(
                f"{origin}{': ' if origin else ''}the table [lab] switches cures off, for experiments. "
                "Remove it, or give --lab if that is what you want"
            )

    def has(self, key: str) -> bool:
        """Tell whether a top-level key was said."""
        return key in self.values

    def _put(self, path: _Path, value: object) -> None:
        target = self.values
        if len(path) > 1:
            target = self.values.setdefault(path[0], {})
            if not isinstance(target, dict):
                return  # said earlier, and wrong: it is left for validation to find
        target[path[-1]] = value


def read_toml_file(path: Path) -> dict[str, Any]:
    """Read a TOML file of settings.

    Raises:
        ConfigError: it cannot be read, or is not TOML.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TOML + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > MAX_TOML:
        raise ConfigError(f"{path} is longer than {MAX_TOML} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start})") from None
    return parse_toml(text, str(path))


def parse_toml(text: str, origin: str) -> dict[str, Any]:
    """Read TOML text. origin: for the message.

    Raises:
        ConfigError: it is not TOML, with line and column.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{origin} is nested too deeply") from None
    except ValueError as error:
        # TOMLDecodeError, or what int() and datetime say; none of them quotes more than a character.
        raise ConfigError(f"{origin} is not TOML: {error}") from None


def build(settings: Settings, kinds: Sequence[type[Any]]) -> tuple[Any, ...]:
    """Return one instance of each dataclass, in order, from the settings whose keys are its fields.

    Raises:
        ConfigError: with one line for each setting that cannot be used.
    """
    values = _expand_words(settings.values)
    known = {name: kind for kind in kinds for name in _field_names(kind)}
    problems = [_unknown((key,), settings, known) for key in values if key not in known]
    built = []
    for kind in kinds:
        own = {key: value for key, value in values.items() if known.get(key) is kind}
        instance, found = _validate(kind, own, settings)
        problems += found
        built.append(instance)
    if len(problems) == 1:
        raise ConfigError(problems[0])
    if problems:
        raise ConfigError("\n  ".join([f"{len(problems)} settings cannot be used:", *problems]))
    return tuple(built)


def _validate(kind: type[_T], values: dict[str, Any], settings: Settings) -> tuple[_T | None, list[str]]:
    """Validate again without what was wrong, until nothing new turns up: one round rarely finds everything."""
    problems: dict[_Path, str] = {}
    adapter = cast("TypeAdapter[_T]", _ADAPTERS[kind])
    for _ in range(MAX_ROUNDS):
        try:
            # As JSON, because strict there still takes text for a network and an array for a tuple.
            instance = adapter.validate_json(json.dumps(values, default=str), strict=True)
        except (RecursionError, UnicodeEncodeError):
            problems[()] = "a setting is nested too deeply or is no text"
            break
        except ValidationError as error:
            found = dict(_problem(kind, cast("dict[str, Any]", item), settings) for item in error.errors())
            # What was removed for being wrong may now be missed; that is not worth a second line.
            problems = found | problems
            if sum(_remove(values, path) for path in found) == 0:
                break
        else:
            return instance, list(problems.values())
    return None, list(problems.values())


def _problem(kind: type, details: dict[str, Any], settings: Settings) -> tuple[_Path, str]:
    """Return the path of the setting (to remove it) and the line for people."""
    path = _path(kind, details["loc"])
    cause = details.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        if cause.field:
            path = (*path, cause.field)
        return path, f"{_where(path, settings)}{str(cause).removeprefix(f'{cause.field}: ')}"
    if details["type"].startswith("missing"):
        return path, f"{'.'.join(path)}: is missing"
    if details["type"] == "unexpected_keyword_argument":
        return path, _unknown(path, settings, _known_keys(kind, path))
    found = details["input"]
    shown = f"a value of type {type(found).__name__}" if path[-1] in _SECRET_KEYS else _shown(found)
    return path, f"{_where(path, settings)}found {shown}; allowed: {_allowed(_annotation(kind, path))}"


def _path(kind: type, loc: Sequence[int | str]) -> _Path:
    """Return the path of the field that pydantic means, without list indices and members of unions."""
    names: list[str] = []
    inside: Any = kind
    for part in loc:
        if not isinstance(part, str) or not is_dataclass(inside):
            break
        names.append(part)
        inside = _hints(cast("type", inside)).get(part)
    return tuple(names)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _annotation(kind: type, path: _Path) -> Any:
    inside: Any = kind
    for name in path:
        inside = _hints(cast("type", inside)).get(name)
    return inside


def _allowed(annotation: Any) -> str:
    if is_dataclass(annotation):
        return "a table"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "one of " + ", ".join(str(member.value) for member in annotation)
    members = [member for member in get_args(annotation) if member not in (NoneType, ...)]
    if not members:
        return _ALLOWED.get(annotation, "something else")
    if members == [IPv4Network, IPv6Network]:
        return "a network without host bits, such as 10.0.0.0/8 or fd00::/8"
    texts = " or ".join(_allowed(member) for member in members)
    return f"a list, each item {texts}" if get_origin(annotation) is tuple else texts


def _shown(value: object) -> str:
    """Return a value for a message. What is inside a table or list is left out: it may be a secret, misplaced."""
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _where(path: _Path, settings: Settings) -> str:
    origin = _origin(path, settings)
    if origin.startswith("--"):
        return f"{origin}: "
    return ": ".join([part for part in (origin, ".".join(path)) if part] + [""])


def _origin(path: _Path, settings: Settings) -> str:
    """Return where a setting, or for a table something in it, was said; nothing for a default."""
    if path in settings.origins:
        return settings.origins[path]
    return next((origin for known, origin in settings.origins.items() if known[: len(path)] == path), "")


def _unknown(path: _Path, settings: Settings, known: Mapping[str, type]) -> str:
    # The value is not shown: it may be a token under a key spelled wrong.
    key, table = path[-1], "".join(path[:-1])
    tables = {"quic": _field_names(QuicConfig), "host": _field_names(HostConfig)}
    elsewhere = [name for name, keys in tables.items() if key in keys and name != table]
    close = difflib.get_close_matches(key, known, n=1)
    if elsewhere:
        hint = f"it belongs into the table [{elsewhere[0]}]"
    elif close:
        hint = f"did you mean {close[0]}?"
    else:
        hint = f"known: {', '.join(sorted(set(known) - {'lab'}))}"  # no word of it in normal use
    origin = _origin(path, settings)
    place = f" in [{table}]" if table else ""
    return f"{origin}{': ' if origin else ''}there is no setting {_shown(key)}{place}; {hint}"


def _known_keys(kind: type, path: _Path) -> dict[str, type]:
    return dict.fromkeys(_field_names(_annotation(kind, path[:-1])), kind)


def _field_names(kind: type) -> list[str]:
    return [item.name for item in fields(kind)]


def _remove(values: dict[str, Any], path: _Path) -> bool:
    if not path:
        return False
    target = values.get(path[0]) if len(path) > 1 else values
    if isinstance(target, dict) and path[-1] in target:
        del target[path[-1]]
        return True
    # A default is at odds with something else in its table: what that is nobody knows, so all of it goes.
    return len(path) > 1 and values.pop(path[0], None) is not None


def _leaves(values: Mapping[str, Any]) -> Iterator[tuple[_Path, Any]]:
    """Yield each setting with its path. Tables are one deep; anything deeper is for validation to refuse."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from (((key, inner), inner_value) for inner, inner_value in value.items())
        else:
            yield (key,), value


def _expand_words(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the words people may say: `default` and `none` among networks, `none` for a pool."""
    expanded = {key: dict(value) if isinstance(value, dict) else value for key, value in values.items()}
    for key in ("pool4", "pool6"):
        if expanded.get(key) == "none":
            expanded[key] = None
    for key in ("routes", "advertise"):
        if isinstance(listed := expanded.get(key), list):
            expanded[key] = [
                network
                for item in listed
                if item != "none"
                for network in (_DEFAULT_ROUTES if item == "default" else (item,))
            ]
            if key == "routes" and "none" in listed:
                expanded["route_mode"] = RouteMode.NONE.value
    return expanded
