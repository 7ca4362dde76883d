"""Whether memory that native forms take not to overlap really does not: the verifier's facts say so, or nobody."""

from collections.abc import Iterable, Mapping, Sequence

import attrs

from flowshunt.errors import InputError
from flowshunt.operation import Disjoint, ExtendedOperation
from flowshunt_ebpf.kops.proving import Native, Prover
from flowshunt_ebpf.program import Program, Site

REASON = "it needs ranges of memory that don't overlap, which the verifier does not know"


def overlapping(program: Program, assumed: Iterable[tuple[Site, Sequence[Disjoint]]]) -> list[Site]:
    """The sites of a lowered program whose ranges may overlap, for all that the verifier knows.

    Those of a program that it rejects all may.
    """
    from flowshunt_ebpf.verifier import verify_cached
    from flowshunt_ebpf.verifier.facts import apart

    try:
        facts = verify_cached(program).facts
    except InputError:  # programs of its type don't run here
        facts = None
    failing = []
    for site, ranges in assumed:
        regions = facts.regions[site.start] if facts is not None else None
        sure = regions is not None and all(
            apart(regions[r.first], r.first_offset, regions[r.second], r.second_offset, r.size) for r in ranges
        )
        if not sure:
            failing.append(site)
    return failing


def attach_forms(
    program: Program,
    operations: Mapping[str, ExtendedOperation],
    prover: Prover,
    architecture: str,
    features: frozenset[str],
) -> Program:
    """Give the sites of a lowered program their native forms, as far as they are proved."""
    sites = []
    assumed = []
    for site in program.sites:
        native = prover.native(operations[site.operation], site.payload, architecture, features)
        if isinstance(native, Native):
            armed = attrs.evolve(site, forms=(*site.forms, native.form))
            sites.append(armed)
            if native.disjoint:
                assumed.append((armed, native.disjoint))
        else:
            sites.append(site)
    if assumed:
        failing = overlapping(program, assumed)
        sites = [attrs.evolve(site, forms=site.forms[:-1]) if site in failing else site for site in sites]
    return attrs.evolve(program, sites=tuple(sites))
