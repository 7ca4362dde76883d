"""Named bits of flows."""

from collections.abc import Sequence

from flowshunt_ids.rules.rule import Flowbits


class FlowbitTable:
    """The bits that are set, by flow. A flow is named by its id, which is never used twice."""

    def __init__(self) -> None:
        self._set: dict[int, set[str]] = {}

    def __len__(self) -> int:
        return len(self._set)

    def holds(self, flow: int, conditions: Sequence[Flowbits]) -> bool:
        """Whether isset and isnotset hold for a flow. Of several names of one option, one that is set is enough."""
        bits = self._set.get(flow, frozenset[str]())
        for condition in conditions:
            if condition.command == "isset" and bits.isdisjoint(condition.names):
                return False
            if condition.command == "isnotset" and not bits.isdisjoint(condition.names):
                return False
        return True

    def change(self, flow: int, changes: Sequence[Flowbits]) -> None:
        """Carry out set, unset and toggle."""
        for change in changes:
            name = change.names[0]
            if change.command == "set":
                self._set.setdefault(flow, set()).add(name)
            elif change.command == "unset":
                self._set.get(flow, set()).discard(name)
            elif change.command == "toggle":
                bits = self._set.setdefault(flow, set())
                bits.symmetric_difference_update((name,))

    def forget(self, flow: int) -> None:
        """Drop a flow that ended."""
        self._set.pop(flow, None)
