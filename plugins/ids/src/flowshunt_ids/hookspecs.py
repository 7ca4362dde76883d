"""Hooks of the detection engine: protocols, buffers, keywords, transforms and bypass policies.

Implement any of them in a plugin module, marked with `flowshunt.hookimpl`; the engine's own come the same way.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from flowshunt_ids.app.contract import AppProtocol, Buffer, BypassWish, ConditionKind
    from flowshunt_ids.rules.keywords.builder import Keyword
    from flowshunt_ids.rules.language import TransformKeyword

hookspec = pluggy.HookspecMarker("flowshunt")


@hookspec
def flowshunt_ids_protocols() -> "Sequence[AppProtocol]":  # type: ignore[empty-body]
    """Protocols of the application layer: how they are recognized and parsed. A name that is taken is refused."""


@hookspec
def flowshunt_ids_buffers() -> "Sequence[Buffer]":  # type: ignore[empty-body]
    """Buffers of transactions: each gives a sticky buffer keyword, and old modifiers where it names some."""


@hookspec
def flowshunt_ids_keywords() -> "Mapping[str, Keyword]":  # type: ignore[empty-body]
    """Further rule keywords. Their `read` adds a `Condition` to the rule that is being read, or changes it."""


@hookspec
def flowshunt_ids_conditions() -> "Sequence[ConditionKind]":  # type: ignore[empty-body]
    """How the conditions that keywords add are judged on a transaction."""


@hookspec
def flowshunt_ids_transforms() -> "Sequence[TransformKeyword]":  # type: ignore[empty-body]
    """Transforms of buffers, each by the keyword that stands for it after a sticky buffer."""


@hookspec
def flowshunt_ids_bypass_policies() -> "Sequence[BypassWish]":  # type: ignore[empty-body]
    """When flows of a protocol are bypassed though no rule says so (encrypted ones, for example)."""
