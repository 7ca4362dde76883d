"""The protocols, buffers, keywords, conditions and transforms of all plugins, by name."""

import functools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from flowshunt.errors import FlowshuntWarning
from flowshunt.plugins import load_plugins
from flowshunt_ids.app.contract import TO_CLIENT, TO_SERVER, AppProtocol, Buffer, BypassWish, ConditionKind
from flowshunt_ids.rules.keywords.builder import Keyword
from flowshunt_ids.rules.language import BufferKeyword, Protocol, TransformKeyword

SHIPPED_APART: Mapping[str, str] = {"tls": "flowshunt-ids-tls", "ssl": "flowshunt-ids-tls", "ssh": "flowshunt-ids-ssh"}
"""Protocols whose plugin is a distribution of its own."""


@attrs.frozen(eq=False)
class Registry:
    """What rules may name.

    protocols: by name and alias; buffers, conditions: by name; bypass: by protocol.
    """

    protocols: Mapping[str, AppProtocol] = attrs.field(factory=dict)
    buffers: Mapping[str, Buffer] = attrs.field(factory=dict)
    keywords: Mapping[str, Keyword] = attrs.field(factory=dict)
    conditions: Mapping[str, ConditionKind] = attrs.field(factory=dict)
    transforms: Mapping[str, TransformKeyword] = attrs.field(factory=dict)
    bypass: Mapping[str, BypassWish] = attrs.field(factory=dict)

    def rule_protocols(self) -> tuple[Protocol, ...]:
        """The protocols as the rule language takes them."""
        distinct = {protocol.name: protocol for protocol in self.protocols.values()}
        return tuple(Protocol(each.name, each.transports, each.aliases) for each in distinct.values())

    def buffer_keywords(self) -> tuple[BufferKeyword, ...]:
        """The buffers as the rule language takes them."""
        return tuple(
            BufferKeyword(
                buffer.name,
                buffer.protocols,
                buffer.aliases,
                buffer.modifier,
                buffer.pcre_flag,
                multi=buffer.multiple and buffer.chained,
                to_server=TO_SERVER in buffer.directions,
                to_client=TO_CLIENT in buffer.directions,
            )
            for buffer in self.buffers.values()
        )

    def missing(self, name: str) -> str | None:
        """The distribution that a protocol or a keyword such as `tls.sni` needs and that is not installed."""
        protocol = name.replace("_", ".").partition(".")[0].removesuffix("3s").removesuffix("3")
        protocol = {"ja": "tls", "hassh": "ssh"}.get(protocol, protocol)
        return SHIPPED_APART.get(protocol) if protocol not in self.protocols else None


@functools.cache
def registry() -> Registry:
    """What the installed plugins give. An object that breaks its contract or has a taken name is left out alone."""
    protocols = _named("flowshunt_ids_protocols", AppProtocol)
    buffers = _named("flowshunt_ids_buffers", Buffer)
    keywords: dict[str, Keyword] = {}
    for plugin, given in load_plugins().call("flowshunt_ids_keywords"):
        for name, keyword in dict(given).items():
            if not isinstance(keyword, Keyword) or keywords.setdefault(name, keyword) is not keyword:
                _refuse(plugin, f"keyword {name}", "the name is taken, or it is no Keyword")
    return Registry(
        {name: protocol for protocol in protocols for name in (protocol.name, *protocol.aliases)},
        {buffer.name: buffer for buffer in buffers},
        keywords,
        {kind.name: kind for kind in _named("flowshunt_ids_conditions", ConditionKind)},
        {transform.name: transform for transform in _named("flowshunt_ids_transforms", TransformKeyword)},
        {wish.protocol: wish for wish in _named("flowshunt_ids_bypass_policies", BypassWish, "protocol")},
    )


def _named(hook: str, kind: type[Any], key: str = "name") -> Sequence[Any]:
    found: dict[str, Any] = {}
    for plugin, given in load_plugins().call(hook):
        for item in given or ():
            if not isinstance(item, kind):
                _refuse(plugin, f"{item!r} of {hook}", f"it is no {kind.__name__}")
            elif found.setdefault(getattr(item, key), item) is not item:
                _refuse(plugin, f"{getattr(item, key)} of {hook}", "the name is taken")
    return tuple(found.values())


def _refuse(plugin: Any, what: str, why: str) -> None:
    message = f"{what} of {plugin.distribution} {plugin.version} is left out: {why}"
    warnings.warn(message, FlowshuntWarning, stacklevel=2)
