"""Orders and dominators of a directed graph given as lists of successors and predecessors.

Dominators by the algorithm of Cooper, Harvey and Kennedy ("A Simple, Fast Dominance Algorithm", 2001).
"""

from collections.abc import Sequence


def reverse_postorder(successors: Sequence[Sequence[int]], entry: int) -> list[int]:
    """The nodes that `entry` leads to, each after all that lead to it save along back edges."""
    seen = {entry}
    order = []
    stack = [(entry, iter(successors[entry]))]
    while stack:
        node, rest = stack[-1]
        for successor in rest:
            if successor not in seen:
                seen.add(successor)
                stack.append((successor, iter(successors[successor])))
                break
        else:
            order.append(node)
            stack.pop()
    order.reverse()
    return order


def immediate_dominators(order: Sequence[int], predecessors: Sequence[Sequence[int]]) -> dict[int, int]:
    """Node to its immediate dominator, for the nodes of a reverse postorder; the entry, order[0], has none."""
    position = {node: place for place, node in enumerate(order)}
    dominator = {0: 0} if order else {}  # by place in the order
    changed = True
    while changed:
        changed = False
        for place in range(1, len(order)):
            found = -1
            for before in predecessors[order[place]]:
                other = position.get(before, -1)
                if other not in dominator:
                    continue
                if found < 0:
                    found = other
                    continue
                while other != found:
                    while other > found:
                        other = dominator[other]
                    while found > other:
                        found = dominator[found]
            if dominator.get(place) != found:
                dominator[place] = found
                changed = True
    return {order[place]: order[above] for place, above in dominator.items() if place}
