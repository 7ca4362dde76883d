"""What rules look at in transactions, ready to be carried out: for each protocol and direction, scans and steps."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from flowshunt_ids.app.contract import BOTH, Buffer, ConditionKind
from flowshunt_ids.app.registry import Registry
from flowshunt_ids.encoding import Pattern, strength
from flowshunt_ids.rules.rule import BufferMatches, ByteExtract, ByteMath, Content, Pcre, Rule

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
    """A rule on transactions of one protocol in one direction.

    Attributes:
        payload: matches the stream around the transaction.
        repeats: it matches again where a step of it holds again.
        again: the progress from past which on it matches at every look: so does Suricata with rules whose contents are
            all negated; None: once.
    """

    number: int
    steps: tuple[Step, ...]
    payload: Callable[[bytes], bool] | None
    repeats: bool
    again: int | None = None


class RuleTable:
    """The rules of a plan by number, each made when it is first asked for."""

    def __init__(self) -> None:
        self._makers: dict[int, Callable[[], TransactionRule]] = {}
        self._made: dict[int, TransactionRule] = {}

    def add(self, number: int, make: Callable[[], TransactionRule]) -> None:
        """Add a rule by what makes it."""
        self._makers[number] = make

    def __len__(self) -> int:
        return len(self._makers)

    def __getitem__(self, number: int) -> TransactionRule:
        made = self._made.get(number)
        if made is None:
            made = self._made[number] = self._makers[number]()
        return made


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
    rules: RuleTable = attrs.field(factory=RuleTable)
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


def _is_found_by_scan(buffer: Buffer, matches: BufferMatches) -> bool:
    """Whether a hit of the scan is all that is asked of a buffer: one content, whole and anywhere in what is there."""
    if buffer.multiple or buffer.streaming or len(matches.matches) != 1:
        return False
    (content,) = matches.matches
    return content == Content(content.pattern, content.nocase) if isinstance(content, Content) else False


def _condition_step(kind: ConditionKind, value: Any, progress: int) -> Step:
    judge = kind.judge
    return Step(progress, lambda transaction, direction: judge(transaction, direction, value), True, True, kind.repeats)


def _has_variables(rule: Rule) -> bool:
    return any(isinstance(match, ByteExtract | ByteMath) for each in rule.buffers for match in each.matches)


def _with_variables(matches: Callable[..., bool], variables: dict[str, int] | None) -> Callable[[bytes], bool]:
    """Let the buffers of one rule see each other's variables. One that was not set yet matches nothing."""
    if variables is None:
        return matches

    def call(data: bytes) -> bool:
        try:
            return matches(data, variables)
        except KeyError:
            return False

    return call


class Planner:
    """Makes plans out of rules."""

    def __init__(
        self,
        registry: Registry,
        matcher: Callable[[Sequence[Any]], Callable[..., bool]],
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
            contents = [best_content(each.matches) for each in rule.buffers]
            for name in protocols_of(rule, self._registry):
                for direction in BOTH if rule.flow.direction is None else (rule.flow.direction,):
                    self._add(plans, wanted, number, rule, contents, name, direction)
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
        contents: Sequence[tuple[float, Pattern] | None],
        name: str,
        direction: int,
    ) -> None:
        best: tuple[float, Pattern] | None = None
        scanned: BufferMatches | None = None
        applies = False
        for each, found in zip(rule.buffers, contents, strict=True):
            buffer = self._registry.buffers[each.buffer]
            if name not in buffer.protocols or buffer.progress_of(name)[direction] is None:
                continue
            applies = True
            if found is not None and (best is None or found[0] > best[0]):
                best, scanned = found, each
        for condition in rule.app_conditions:
            kind = self._registry.conditions[condition.name]
            known = kind.progress[direction] is not None
            applies = applies or (known and (not kind.protocols or name in kind.protocols))
        if not applies:
            return
        plan = plans.setdefault((name, direction), Plan())
        plan.rules.add(number, lambda: self._rule(number, rule, scanned, name, direction))
        if best is None or scanned is None:
            plan.always.append(number)
        else:
            where = (scanned.buffer, scanned.transforms)
            wanted.setdefault((name, direction), {}).setdefault(where, []).append((best[1], number))

    def _rule(
        self, number: int, rule: Rule, scanned: BufferMatches | None, name: str, direction: int
    ) -> TransactionRule:
        """A rule's steps: what is scanned for comes first, the rest as it becomes known, expressions last."""
        variables: dict[str, int] | None = {} if _has_variables(rule) else None
        steps: list[tuple[bool, int, int, Step]] = []
        for each in rule.buffers:
            buffer = self._registry.buffers[each.buffer]
            progress = buffer.progress_of(name)[direction]
            if name not in buffer.protocols or progress is None:
                continue
            if each is scanned and variables is None and _is_found_by_scan(buffer, each):
                continue
            get = transformed(buffer.get, self._prepared(each), buffer.multiple)
            matches = _with_variables(self._matcher(each.matches), variables)
            expressions = sum(isinstance(match, Pcre) for match in each.matches)
            steps.append((each is not scanned, progress, expressions, _buffer_step(buffer, get, progress, matches)))
        for condition in rule.app_conditions:
            kind = self._registry.conditions[condition.name]
            progress = kind.progress[direction]
            if progress is not None and (not kind.protocols or name in kind.protocols):
                steps.append((True, progress, 0, _condition_step(kind, condition.value, progress)))
        if variables is None:
            steps.sort(key=lambda step: (step[0], step[3].repeats, step[1], step[2]))
        payload = _with_variables(self._matcher(rule.payload), variables) if rule.payload else None
        return TransactionRule(
            number,
            tuple(step for *_, step in steps),
            payload,
            any(step.repeats for *_, step in steps),
            self._negated_progress(rule, name, direction) if scanned is None else None,
        )

    def _negated_progress(self, rule: Rule, name: str, direction: int) -> int | None:
        """The progress of the buffer with the longest negated content; None: there is none."""
        longest, found = 0, None
        for each in rule.buffers:
            buffer = self._registry.buffers[each.buffer]
            progress = buffer.progress_of(name)[direction]
            for match in each.matches if name in buffer.protocols else ():
                if isinstance(match, Content) and match.negated and len(match.pattern) > longest:
                    longest, found = len(match.pattern), progress
        return found

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
