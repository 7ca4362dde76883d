"""What a configuration file (suricata.yaml) and `key=value` settings say to this engine."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from flowshunt.engine import EngineConfig
from flowshunt.errors import InputError
from flowshunt_ids.rules.classification import Classification, read_classes, read_references
from flowshunt_ids.rules.text_files import read_text
from flowshunt_ids.rules.variables import DEFAULT_ADDRESSES, DEFAULT_PORTS, Variables

MAX_CONFIG = 4 * 1024 * 1024
"""The largest configuration file in bytes."""
MAX_REASSEMBLY = 128 * 1024 * 1024
"""The most memory in bytes for pending stream data, whatever the configuration allows."""
MAX_SIZE = 1 << 48
"""What larger sizes in bytes come down to: more than any machine has, and sums of them stay in 64 bits."""

_UNITS = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_SIZE = re.compile(r"(\d{1,15})(?:\.(\d+))?\s*([kmg]?i?b?)", re.IGNORECASE)
_TRUE = frozenset({"1", "yes", "true", "on"})
_FALSE = frozenset({"0", "no", "false", "off"})
_ACTIONS = re.compile(r"[a-z][a-z0-9_-]*")


@attrs.frozen
class Settings:
    """What the engine works with.

    Attributes:
        depth: bytes of a stream side that are reassembled; 0: no limit.
        chunk_to_server, chunk_to_client: bytes of acknowledged stream data that are inspected at once.
        reassembly_memory: bytes of pending stream data that are kept in all.
        midstream: whether connections are picked up in their middle.
        stream_bypass: whether a flow is bypassed when its reassembly depth is reached.
        bypass_action: the offload action of bypassed flows.
        alerts_per_packet: the most alerts of one packet.
        rule_files: from the configuration, for a run that names none.
    """

    variables: Variables = attrs.field(factory=Variables)
    classification: Classification = attrs.field(factory=Classification)
    rule_files: tuple[Path, ...] = ()
    depth: int = 1 << 20
    chunk_to_server: int = 2560
    chunk_to_client: int = 2560
    reassembly_memory: int = MAX_REASSEMBLY
    midstream: bool = False
    stream_bypass: bool = False
    bypass_action: str = "drop"
    alerts_per_packet: int = 15
    defrag_memory: int = 8 * 1024 * 1024


def load_settings(config: EngineConfig) -> Settings:
    """Read a run's configuration. Raises `InputError` for a file or a value that can't be used."""
    tree = _read_yaml(config.config) if config.config is not None else {}
    for key, value in config.settings.items():
        _set(tree, key, value)
    where = str(config.config) if config.config is not None else "settings"
    reader = _Reader(tree, where)
    folder = config.config.parent if config.config is not None else Path()
    memory = reader.size("stream.reassembly.memcap", MAX_REASSEMBLY)
    action = reader.text("bypass-action", "drop")
    if not _ACTIONS.fullmatch(action):
        raise InputError(f"bypass-action: {action!r} is not the name of an offload action", where)
    return Settings(
        _variables(reader),
        _classification(reader, folder),
        _rule_files(reader, folder),
        depth=reader.size("stream.reassembly.depth", 1 << 20),
        chunk_to_server=max(1, reader.size("stream.reassembly.toserver-chunk-size", 2560)),
        chunk_to_client=max(1, reader.size("stream.reassembly.toclient-chunk-size", 2560)),
        reassembly_memory=min(memory, MAX_REASSEMBLY) if memory else MAX_REASSEMBLY,
        midstream=reader.flag("stream.midstream", False),
        stream_bypass=reader.flag("stream.bypass", False),
        bypass_action=action,
        alerts_per_packet=max(1, reader.size("packet-alert-max", 15)),
        defrag_memory=min(reader.size("defrag.memcap", 8 << 20), 64 << 20),
    )


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    text = read_text(path, "configuration", MAX_CONFIG)
    try:
        tree = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        raise InputError(f"not valid YAML: {getattr(problem, 'problem', None) or problem}", place) from None
    except (RecursionError, ValueError, TypeError, OverflowError) as problem:
        raise InputError(f"not usable as a configuration: {type(problem).__name__}", str(path)) from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise InputError("the configuration is not a mapping of keys to values", str(path))
    return tree


def _set(tree: dict[str, Any], key: str, value: str) -> None:
    """Put a value at a dotted key, as Suricata's `--set` does."""
    *folders, name = key.split(".")
    place = tree
    for folder in folders:
        inner = place.get(folder)
        if not isinstance(inner, dict):
            inner = place[folder] = {}
        place = inner
    place[name] = value


class _Reader:
    def __init__(self, tree: Mapping[str, Any], where: str) -> None:
        self._tree = tree
        self.where = where

    def value(self, key: str) -> Any:
        place: Any = self._tree
        for part in key.split("."):
            if not isinstance(place, Mapping):
                return None
            place = place.get(part)
        return place

    def text(self, key: str, default: str) -> str:
        value = self.value(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise InputError(f"{key}: not a text", self.where)
        return str(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.value(key)
        if value is None:
            return default
        text = str(value).lower()
        if text not in _TRUE | _FALSE:
            raise InputError(f"{key}: {value!r} is neither yes nor no", self.where)
        return text in _TRUE

    def size(self, key: str, default: int) -> int:
        value = self.value(key)
        if value is None:
            return default
        found = _SIZE.fullmatch(str(value).strip()) if not isinstance(value, bool) else None
        unit = _UNITS.get(found[3].lower()) if found else None
        if found is None or unit is None:
            raise InputError(f"{key}: {value!r} is not a number of bytes", self.where, "such as 2560, 64kb, 1mb")
        return min(int(float(f"{found[1]}.{found[2] or 0}") * unit), MAX_SIZE)

    def group(self, key: str) -> dict[str, str] | None:
        value = self.value(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise InputError(f"{key}: not a mapping of names to lists", self.where)
        return {str(name): _list_text(entry, f"{key}.{name}", self.where) for name, entry in value.items()}


def _list_text(entry: Any, key: str, where: str) -> str:
    if isinstance(entry, list) and all(isinstance(item, str | int) and not isinstance(item, bool) for item in entry):
        return "[" + ",".join(str(item) for item in entry) + "]"
    if isinstance(entry, str | int) and not isinstance(entry, bool):
        return str(entry)
    raise InputError(f"{key}: not a list of addresses or ports", where)


def _variables(reader: _Reader) -> Variables:
    addresses = reader.group("vars.address-groups")
    ports = reader.group("vars.port-groups")
    return Variables(
        {**DEFAULT_ADDRESSES, **addresses} if addresses is not None else DEFAULT_ADDRESSES,
        {**DEFAULT_PORTS, **ports} if ports is not None else DEFAULT_PORTS,
    )


def _classification(reader: _Reader, folder: Path) -> Classification:
    default = Classification()
    classes, references = default.classes, default.references
    name = reader.text("classification-file", "")
    if name:
        classes = read_classes(read_text(folder / name, "classification file"))
    name = reader.text("reference-config-file", "")
    if name:
        references = read_references(read_text(folder / name, "reference file"))
    return Classification(classes, references)


def _rule_files(reader: _Reader, folder: Path) -> tuple[Path, ...]:
    value = reader.value("rule-files")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InputError("rule-files: not a list of file names", reader.where)
    base = folder / reader.text("default-rule-path", ".")
    files: list[Path] = []
    for item in value:
        if any(letter in item for letter in "*?["):
            files.extend(sorted(base.glob(item)) if not Path(item).is_absolute() else [Path(item)])
        else:
            files.append(base / item)
    return tuple(files)
