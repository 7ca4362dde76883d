"""Named integers of flows (`flowint`)."""

from collections.abc import Sequence

from flowshunt_ids.rules.rule import FlowInteger

_MASK = 0xFFFFFFFF


class FlowIntegers:
    """The integers that were given a value, by flow. A flow is named by its id, which is never used twice."""

    def __init__(self) -> None:
        self._values: dict[int, dict[str, int]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def holds(self, flow: int, options: Sequence[FlowInteger]) -> bool:
        """Whether what a rule asks of a flow's integers holds. One without a value compares with nothing."""
        values = self._values.get(flow, {})
        return all(option.changes or _asked(option, values) for option in options)

    def change(self, flow: int, options: Sequence[FlowInteger]) -> None:
        """Carry out what a rule changes, in 32 bits as Suricata."""
        for option in options:
            if not option.changes:
                continue
            values = self._values.setdefault(flow, {})
            operand = _operand(option, values)
            before = values.get(option.name)
            if option.command == "=":
                values[option.name] = operand
            elif option.command == "+":
                values[option.name] = (before or 0) + operand & _MASK
            elif before is not None:
                values[option.name] = before - operand & _MASK

    def forget(self, flow: int) -> None:
        """Drop a flow that ended."""
        self._values.pop(flow, None)


def _operand(option: FlowInteger, values: dict[str, int]) -> int:
    if isinstance(option.value, str):
        return values.get(option.value, 0)
    return option.value or 0


def _asked(option: FlowInteger, values: dict[str, int]) -> bool:
    value = values.get(option.name)
    if option.command == "isset":
        return value is not None
    if option.command == "isnotset":
        return value is None
    if value is None:
        return False
    operand = _operand(option, values)
    return {
        "<": value < operand,
        "<=": value <= operand,
        ">": value > operand,
        ">=": value >= operand,
        "==": value == operand,
    }.get(option.command, value != operand)
