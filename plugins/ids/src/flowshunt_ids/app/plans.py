"""What rules look at in transactions, ready to be carried out: for each protocol and direction, scans and steps."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from flowshunt_ids.app.contract import BOTH, TO_CLIENT, TO_SERVER, Buffer, ConditionKind
from flowshunt_ids.app.registry import Registry
from flowshunt_ids.encoding import Pattern, strength
from flowshunt_ids.rules.rule import BufferMatches, Content, Rule

Get = Callable[[Any, int], Any]


@attrs.frozen(eq=False)
class Step:
    """One thing that has to hold: looked at from `progress` on, again while the progress stands there if `streaming`.

    judge: takes the transaction and the direction. True: holds; False: does not; None: nothing is there yet.
    patient: None may become an answer whatever the progress, and False is final. repeats: see `ConditionKind`.
    """

    progress: int
    judge: Callable[[Any, int], bool | None]
    streaming: bool
    patient: bool = False
    repeats: bool = False


@attrs.frozen(eq=False)
class TransactionRule:
    """A rule on transactions of one protocol in one direction. payload: matches the stream around the transaction."""

    number: int
    steps: tuple[Step, ...]
    payload: Callable[[bytes], bool] | None
    scanned: bool
    repeats: bool


@attrs.frozen(eq=False)
class Scan:
    """A buffer that is scanned for the patterns of its rules. rules: for each pattern's number the rules' numbers."""

    progress: int
    get: Get
    multiple: bool
    streaming: bool
    scan: Callable[[bytes], Sequence[int]]
    rules: tuple[tuple[int, ...], ...]


@attrs.define(eq=False)
class Plan:
    """What is looked at in one direction of one protocol's transactions. always: rules that nothing is scanned for."""

    scans: list[Scan] = attrs.field(factory=list)
    rules: dict[int, TransactionRule] = attrs.field(factory=dict)
    always: list[int] = attrs.field(factory=list)


def is_on_transactions(rule: Rule) -> bool:
    """Whether a rule looks at transactions."""
    return bool(rule.buffers or rule.app_conditions)


def protocols_of(rule: Rule, registry: Registry) -> tuple[str, ...]:
    """The protocols in whose transactions a rule can match."""
    if rule.app_protocol is not None:
        protocol = registry.protocols.get(rule.app_protocol)
        return (protocol.name,) if protocol is not None else ()
    found = {name for each in rule.buffers for name in registry.buffers[each.buffer].protocols}
    for condition in rule.app_conditions:
        kind = registry.conditions[condition.name]
        found |= set(kind.protocols) or set(registry.protocols)
    return tuple(sorted(name for name in found if name in registry.protocols))


def best_content(matches: Iterable[Any]) -> tuple[float, Pattern] | None:
    """The content of a buffer that is most worth scanning for, with what it is worth."""
    best: tuple[float, Pattern] | None = None
    for match in matches:
        if not isinstance(match, Content) or match.negated:
            continue
        literal, worth = match.pattern, 0.0
        marked = match.fast_pattern
        if marked is not None:
            literal = literal[marked.start : None if marked.length is None else marked.start + marked.length]
            worth = 1e6
        worth += strength(literal, match.nocase)
        if best is None or worth > best[0]:
            best = worth, Pattern(literal, match.nocase)
    return best


def transformed(get: Get, transforms: Sequence[Callable[[bytes], bytes]], multiple: bool) -> Get:
    """A buffer's bytes after transforms."""
    if not transforms:
        return get

    def change(data: bytes) -> bytes:
        for transform in transforms:
            data = transform(data)
        return data

    def of(transaction: Any, direction: int) -> Any:
        data = get(transaction, direction)
        if data is None:
            return None
        return [change(each) for each in data] if multiple else change(data)

    return of


def _buffer_step(buffer: Buffer, get: Get, progress: int, matches: Callable[[bytes], bool]) -> Step:
    if buffer.multiple:

        def judge(transaction: Any, direction: int) -> bool | None:
            found = get(transaction, direction)
            if not found:
                return None
            return any(matches(each) for each in found)
    else:

        def judge(transaction: Any, direction: int) -> bool | None:
            data = get(transaction, direction)
            return None if data is None else matches(data)

    return Step(progress, judge, buffer.streaming or buffer.multiple)


def _condition_step(kind: ConditionKind, value: Any, progress: int) -> Step:
    judge = kind.judge
    return Step(progress, lambda transaction, direction: judge(transaction, direction, value), True, True, kind.repeats)


class Planner:
    """Makes plans out of rules."""

    def __init__(
        self,
        registry: Registry,
        matcher: Callable[[Sequence[Any]], Callable[[bytes], bool]],
        database: Callable[[Sequence[Pattern]], Callable[[bytes], Sequence[int]]],
    ) -> None:
        """matcher: makes the function that matches a buffer; database: the one that scans a buffer for patterns."""
        self._registry = registry
        self._matcher = matcher
        self._database = database
        self._transforms: dict[Any, Callable[[bytes], bytes]] = {}

    def plans(self, rules: Sequence[Rule]) -> dict[tuple[str, int], Plan]:
        """The plans by protocol and direction. A rule's number is its place in `rules`."""
        plans: dict[tuple[str, int], Plan] = {}
        wanted: dict[tuple[str, int], dict[tuple[Any, ...], list[tuple[Pattern, int]]]] = {}
        for number, rule in enumerate(rules):
            if not is_on_transactions(rule):
                continue
            matchers = [self._matcher(each.matches) for each in rule.buffers]
            payload = self._matcher(rule.payload) if rule.payload else None
            for name in protocols_of(rule, self._registry):
                for direction in BOTH if rule.flow.direction is None else (rule.flow.direction,):
                    self._add(plans, wanted, number, rule, matchers, payload, name, direction)
        for key, scans in wanted.items():
            made = [self._scan(where, found, key) for where, found in scans.items()]
            plans[key].scans = sorted(made, key=lambda scan: scan.progress)
        return plans

    def _add(
        self,
        plans: dict[tuple[str, int], Plan],
        wanted: dict[tuple[str, int], dict[tuple[Any, ...], list[tuple[Pattern, int]]]],
        number: int,
        rule: Rule,
        matchers: Sequence[Callable[[bytes], bool]],
        payload: Callable[[bytes], bool] | None,
        name: str,
        direction: int,
    ) -> None:
        steps: list[tuple[BufferMatches | None, int, Step]] = []
        best: tuple[float, Pattern, BufferMatches] | None = None
        for each, matches in zip(rule.buffers, matchers, strict=True):
            buffer = self._registry.buffers[each.buffer]
            progress = buffer.progress_of(name)[direction]
            if name not in buffer.protocols or progress is None:
                continue
            found = best_content(each.matches)
            if found is not None and (best is None or found[0] > best[0]):
                best = (*found, each)
            get = transformed(buffer.get, self._prepared(each), buffer.multiple)
            steps.append((each, progress, _buffer_step(buffer, get, progress, matches)))
        for condition in rule.app_conditions:
            kind = self._registry.conditions[condition.name]
            progress = kind.progress[direction]
            if progress is not None and (not kind.protocols or name in kind.protocols):
                steps.append((None, progress, _condition_step(kind, condition.value, progress)))
        if not steps:
            return
        # What is scanned for comes first, the rest as it becomes known.
        scanned = best[2] if best is not None else None
        steps.sort(key=lambda step: (step[0] is not scanned or scanned is None, step[2].repeats, step[1]))
        plan = plans.setdefault((name, direction), Plan())
        plan.rules[number] = TransactionRule(
            number,
            tuple(step for _, _, step in steps),
            payload,
            best is not None,
            any(step.repeats for _, _, step in steps),
        )
        if best is None:
            plan.always.append(number)
        else:
            where = (best[2].buffer, best[2].transforms)
            wanted.setdefault((name, direction), {}).setdefault(where, []).append((best[1], number))

    def _prepared(self, matches: BufferMatches) -> list[Callable[[bytes], bytes]]:
        made = []
        for transform in matches.transforms:
            if transform not in self._transforms:
                kind = self._registry.transforms[transform.name]
                self._transforms[transform] = kind.prepare(transform.argument)
            made.append(self._transforms[transform])
        return made

    def _scan(self, where: tuple[Any, ...], found: Sequence[tuple[Pattern, int]], key: tuple[str, int]) -> Scan:
        name, transforms = where
        buffer = self._registry.buffers[name]
        by_pattern: dict[Pattern, list[int]] = {}
        for pattern, number in found:
            by_pattern.setdefault(pattern, []).append(number)
        ordered = sorted(by_pattern, key=lambda pattern: (pattern.literal, pattern.nocase))
        progress = buffer.progress_of(key[0])[key[1]]
        assert progress is not None
        get = transformed(buffer.get, self._prepared(BufferMatches(name, transforms)), buffer.multiple)
        return Scan(
            progress,
            get,
            buffer.multiple,
            buffer.streaming or buffer.multiple,
            self._database(ordered),
            tuple(tuple(by_pattern[pattern]) for pattern in ordered),
        )


def directions_of(rule: Rule, registry: Registry, name: str) -> tuple[int, ...]:
    """The directions in which a rule looks at a protocol's transactions."""
    if rule.flow.direction is not None:
        return (rule.flow.direction,)
    found: set[int] = set()
    for each in rule.buffers:
        progress = registry.buffers[each.buffer].progress_of(name)
        found |= {direction for direction in (TO_SERVER, TO_CLIENT) if progress[direction] is not None}
    return tuple(sorted(found))


def interest(rules: Sequence[Rule], registry: Registry) -> Mapping[str, bool]:
    """For each protocol that any rule names, whether some rule looks at its transactions."""
    found: dict[str, bool] = {}
    for rule in rules:
        if is_on_transactions(rule):
            for name in protocols_of(rule, registry):
                found[name] = True
        elif rule.app_protocol is not None:
            found.setdefault(rule.app_protocol, False)
    return found
