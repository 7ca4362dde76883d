"""What a configuration file (suricata.yaml) and `key=value` settings say to this engine."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from flowshunt.engine import EngineConfig
from flowshunt.errors import InputError
from flowshunt.flows.record import FlowTimeouts
from flowshunt_ids.configuration import Configuration, put, read_tree, say_unasked
from flowshunt_ids.rules.classification import Classification, read_classes, read_references
from flowshunt_ids.rules.text_files import read_text
from flowshunt_ids.rules.variables import DEFAULT_ADDRESSES, DEFAULT_PORTS, Variables

MAX_REASSEMBLY = 128 * 1024 * 1024
"""The most memory in bytes for pending stream data, whatever the configuration allows."""

_ACTIONS = re.compile(r"[a-z][a-z0-9_-]*")
_FLOW_STATES = ("new", "established", "closed", "bypassed")


@attrs.frozen
class Settings:
    """What the engine works with.

    Attributes:
        depth: bytes of a stream side that are reassembled; 0: no limit.
        chunk_to_server, chunk_to_client: bytes of acknowledged stream data that are inspected at once.
        reassembly_memory: bytes of pending stream data that are kept in all.
        midstream: whether connections are picked up in their middle; async_oneside: whether those are followed of
            which one direction is seen.
        stream_bypass: whether a flow is bypassed when its reassembly depth is reached.
        bypass_action: the offload action of bypassed flows.
        alerts_per_packet: the most alerts of one packet.
        rule_files: from the configuration, for a run that names none.
        threshold_file: limits and suppressions for rules; None: no file.
        defrag_memory, defrag_timeout: bytes of fragments that are kept in all, and for how many seconds.
        host_policies: the operating system of hosts: policy name to lists of addresses, as in `host-os-policy`.
        flow_timeouts: seconds without a packet after which flows end, by protocol ("default", "tcp", ...) and state.
        stream: the whole `stream` part, app_layer: `app-layer.protocols`; decoder: the `decoder` part.
        eve_types: what `outputs.eve-log.types` names, each with its options; None: there is no such output.
        napatech: the `napatech` part, for who drives such a card.
        warnings: a line for what is not used.
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
    async_oneside: bool = False
    threshold_file: Path | None = None
    defrag_timeout: int = 60
    host_policies: Mapping[str, str] = attrs.field(factory=dict)
    flow_timeouts: Mapping[str, Mapping[str, int]] = attrs.field(factory=dict)
    stream: Mapping[str, Any] = attrs.field(factory=dict)
    app_layer: Mapping[str, Any] = attrs.field(factory=dict)
    decoder: Mapping[str, Any] = attrs.field(factory=dict)
    eve_types: Mapping[str, Mapping[str, Any]] | None = None
    napatech: Mapping[str, Any] = attrs.field(factory=dict)
    warnings: tuple[str, ...] = ()

    def timeouts(self) -> FlowTimeouts | None:
        """When flows end, as the configuration has it; None where it says nothing of it."""
        given = self.flow_timeouts
        if not given:
            return None
        named = {
            f"{'other' if protocol == 'default' else protocol}_{state}": float(seconds)
            for protocol, states in given.items()
            for state, seconds in states.items()
            if state in ("new", "established") or (protocol, state) == ("tcp", "closed")
        }
        bypassed = [states["bypassed"] for states in given.values() if "bypassed" in states]
        if bypassed:
            named["bypassed"] = float(max(bypassed))
        return FlowTimeouts(**named)

    def protocol(self, name: str) -> Mapping[str, Any]:
        """The part of the configuration of an application protocol; empty where there is none."""
        part = self.app_layer.get(name)
        return part if isinstance(part, Mapping) else {}

    def enabled(self, name: str, transport: str = "") -> str:
        """Whether an application protocol is parsed: "yes", "no" or "detection-only".

        transport: "tcp" or "udp", for protocols whose part has one of its own for each.
        """
        part = self.protocol(name)
        inner = part.get(transport)
        value = inner.get("enabled") if isinstance(inner, Mapping) else part.get("enabled")
        text = str(value).lower()
        if text == "detection-only":
            return text
        return "no" if text in ("no", "false", "off", "0") else "yes"


def load_settings(config: EngineConfig) -> Settings:
    """Read a run's configuration. Raises `InputError` for a file or a value that can't be used."""
    tree = read_tree(config.config) if config.config is not None else {}
    for key, value in config.settings.items():
        put(tree, key, value)
    where = str(config.config) if config.config is not None else "--set"
    reader = Configuration(tree, where)
    folder = config.config.parent if config.config is not None else Path()
    memory = reader.size("stream.reassembly.memcap", MAX_REASSEMBLY)
    action = reader.text("bypass-action", "drop")
    if not _ACTIONS.fullmatch(action):
        raise InputError(f"bypass-action: {action!r} is not the name of an offload action", where)
    settings = Settings(
        _variables(reader),
        _classification(reader, folder),
        _rule_files(reader, folder),
        depth=reader.size("stream.reassembly.depth", 1 << 20),
        chunk_to_server=max(1, reader.size("stream.reassembly.toserver-chunk-size", 2560)),
        chunk_to_client=max(1, reader.size("stream.reassembly.toclient-chunk-size", 2560)),
        reassembly_memory=min(memory, MAX_REASSEMBLY) if memory else MAX_REASSEMBLY,
        midstream=reader.flag("stream.midstream", False),
        async_oneside=reader.flag("stream.async-oneside", False),
        stream_bypass=reader.flag("stream.bypass", False),
        bypass_action=action,
        alerts_per_packet=max(1, reader.size("packet-alert-max", 15)),
        defrag_memory=min(reader.size("defrag.memcap", 8 << 20), 64 << 20),
        defrag_timeout=reader.number("defrag.timeout", 60, 3600),
        threshold_file=_file(reader, folder, "threshold-file"),
        host_policies=reader.group("host-os-policy") or {},
        flow_timeouts=_flow_timeouts(reader),
        stream=reader.part("stream"),
        app_layer=reader.part("app-layer.protocols"),
        decoder=reader.part("decoder"),
        eve_types=_eve_types(reader),
        napatech=reader.part("napatech"),
    )
    return attrs.evolve(settings, warnings=tuple(say_unasked(reader.unasked(), where)))


def _variables(reader: Configuration) -> Variables:
    addresses = reader.group("vars.address-groups")
    ports = reader.group("vars.port-groups")
    return Variables(
        {**DEFAULT_ADDRESSES, **addresses} if addresses is not None else DEFAULT_ADDRESSES,
        {**DEFAULT_PORTS, **ports} if ports is not None else DEFAULT_PORTS,
    )


def _file(reader: Configuration, folder: Path, key: str) -> Path | None:
    name = reader.text(key, "")
    return folder / name if name else None


def _classification(reader: Configuration, folder: Path) -> Classification:
    default = Classification()
    classes, references = default.classes, default.references
    path = _file(reader, folder, "classification-file")
    if path is not None:
        classes = read_classes(read_text(path, "classification file"))
    path = _file(reader, folder, "reference-config-file")
    if path is not None:
        references = read_references(read_text(path, "reference file"))
    return Classification(classes, references)


def _rule_files(reader: Configuration, folder: Path) -> tuple[Path, ...]:
    base = folder / reader.text("default-rule-path", ".")
    value = reader.value("rule-files")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InputError("rule-files: not a list of file names", reader.where)
    files: list[Path] = []
    for item in value:
        if any(letter in item for letter in "*?["):
            files.extend(sorted(base.glob(item)) if not Path(item).is_absolute() else [Path(item)])
        else:
            files.append(base / item)
    return tuple(files)


def _flow_timeouts(reader: Configuration) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for protocol in ("default", "tcp", "udp", "icmp"):
        states = {
            state: reader.number(f"flow-timeouts.{protocol}.{state}", -1, 86_400)
            for state in (*_FLOW_STATES, *(f"emergency-{state}" for state in _FLOW_STATES))
        }
        given = {state: seconds for state, seconds in states.items() if seconds >= 0 and state in _FLOW_STATES}
        if given:
            found[protocol] = given
    return found


def _eve_types(reader: Configuration) -> dict[str, Mapping[str, Any]] | None:
    """The types of the first eve-log output that is enabled."""
    for output in reader.items("outputs"):
        log = output.get("eve-log") if isinstance(output, Mapping) else None
        if not isinstance(log, Mapping) or str(log.get("enabled", "yes")).lower() in ("no", "false", "off", "0"):
            continue
        types = log.get("types")
        if not isinstance(types, list):
            return {}
        found: dict[str, Mapping[str, Any]] = {}
        for entry in types:
            if isinstance(entry, Mapping):
                for name, options in entry.items():
                    found[str(name)] = options if isinstance(options, Mapping) else {}
            else:
                found[str(entry)] = {}
        return found
    return None
