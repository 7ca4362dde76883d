"""Keywords on sets of values: dataset, datarep."""

import re
from pathlib import Path

from flowshunt_ids.rules.keywords.builder import Keyword, RuleBuilder, whole_number
from flowshunt_ids.rules.lexer import RuleError
from flowshunt_ids.rules.rule import Dataset, DatasetMatch, ReputationMatch

_KINDS = {"string": "string", "md5": "md5", "sha256": "sha256", "ipv4": "ipv4", "ipv6": "ip", "ip": "ip"}
_NAME = re.compile(r"[^\s,]{1,63}")
_SETTINGS = frozenset({"type", "load", "save", "state", "memcap", "hashsize"})


def _settings(parts: list[str], keyword: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in parts:
        name, _blank, setting = part.partition(" ")
        if name not in _SETTINGS or not setting.strip() or name in found:
            raise RuleError(f"{keyword}: {part!r} is not one of {', '.join(sorted(_SETTINGS))} with a value, once")
        found[name] = setting.strip()
    return found


def _dataset_of(rule: RuleBuilder, name: str, found: dict[str, str], keyword: str) -> Dataset:
    """The set that a keyword names. One that another rule of the run has described needs no type."""
    if not _NAME.fullmatch(name):
        raise RuleError(f"{keyword}: {name!r} is not the name of a set")
    if "state" in found and ("load" in found or "save" in found):
        raise RuleError(f"{keyword}: state stands for both load and save")
    kind = found.get("type", "")
    if kind and kind not in _KINDS:
        raise RuleError(f"{keyword}: type {kind!r} is not one of {', '.join(_KINDS)}")
    load = found.get("load", "")
    if load:
        load = str(_beside(rule, load))
    elif "state" in found and _beside(rule, found["state"]).exists():
        load = str(_beside(rule, found["state"]))
    known = rule.datasets.get(name)
    if known is not None and kind in ("", known.kind) and load in ("", known.load):
        return known
    if known is not None and kind not in ("", known.kind):
        raise RuleError(f"{keyword}: {name} is a set of type {known.kind}, not {kind}")
    if not kind:
        raise RuleError(f"{keyword}: no type is given for {name}")
    dataset = Dataset(name, _KINDS[kind], load)
    rule.datasets[name] = dataset
    return dataset


def _beside(rule: RuleBuilder, name: str) -> Path:
    return Path(rule.path).parent / name


def _dataset(rule: RuleBuilder, value: str) -> None:
    command, name, *rest = [*(part.strip() for part in value.split(",")), ""]
    if command not in ("isset", "isnotset", "set", "unset"):
        raise RuleError(f"dataset: {command!r} is not a command (isset, isnotset, set, unset)")
    if rule.sticky is None:
        raise RuleError("dataset: needs a sticky buffer before it")
    found = _settings([part for part in rest if part], "dataset")
    rule.add_match(DatasetMatch(command, _dataset_of(rule, name, found, "dataset")))


def _datarep(rule: RuleBuilder, value: str) -> None:
    parts = [part.strip() for part in value.split(",")]
    if len(parts) < 3 or parts[1] not in ("<", ">", "=", "=="):
        raise RuleError("datarep: takes 'name, <|>|==, value[, type T, load FILE]'")
    if rule.sticky is None:
        raise RuleError("datarep: needs a sticky buffer before it")
    dataset = _dataset_of(rule, parts[0], _settings([part for part in parts[3:] if part], "datarep"), "datarep")
    rule.add_match(ReputationMatch(dataset, parts[1][0], whole_number(parts[2], "datarep", 0, 65535)))


DATASET_KEYWORDS = {"dataset": Keyword(_dataset), "datarep": Keyword(_datarep)}
