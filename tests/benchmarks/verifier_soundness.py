"""Random programs through the verifier, and what it accepts through the interpreter: no fault, no bound exceeded.

    python tests/benchmarks/verifier_soundness.py [ACCEPTED] [FIRST_SEED]

Runs until so many programs were accepted (1000 unless given), prints what came of them, and ends with status 1 if
anything was not as claimed.
"""

import itertools
import sys
import time

from flowshunt_ebpf.testing.soundness import try_programs

SHARE = 2000


def main(accepted: int, first: int) -> int:
    start = time.process_time()
    total = runs = steps = rejected = cut = 0
    violations = {}
    rules: dict[str, int] = {}
    for seeds in itertools.count(first, SHARE):
        tally = try_programs(range(seeds, seeds + SHARE), accepted=accepted - total)
        total, rejected, runs = total + tally.accepted, rejected + tally.rejected, runs + tally.runs
        steps, cut = steps + tally.steps, cut + tally.cut
        violations |= tally.violations
        for rule, count in tally.rules.items():
            rules[rule] = rules.get(rule, 0) + count
        for seed, violation in tally.violations.items():
            print(f"seed {seed}, instruction {violation.index}: {violation.what}", flush=True)
        seconds = time.process_time() - start
        print(f"{total} accepted, {rejected} rejected, {len(violations)} violations, {seconds:.0f} s", flush=True)
        if total >= accepted:
            break
    print(f"runs {runs}, steps {steps}, ended by the budget {cut}; {total / seconds:.0f} accepted programs a second")
    print("rejected for: " + ", ".join(f"{rule} {count}" for rule, count in sorted(rules.items(), key=lambda r: -r[1])))
    return 1 if violations else 0


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    sys.exit(main(*given, *(1000, 0)[len(given) :]))
