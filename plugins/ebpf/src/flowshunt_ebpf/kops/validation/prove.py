"""Proving, with the caches in front: what the loader asks."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import attrs

from flowshunt.host_registers import BY_ARCHITECTURE
from flowshunt.insn import Instruction
from flowshunt.operation import Disjoint, ExtendedOperation, NativeEmit
from flowshunt.proof_sequence import broken_rule
from flowshunt_ebpf.kops.validation.cache import PROCESS, ProofCache, default_cache, digest
from flowshunt_ebpf.kops.validation.canonical import exact_emit, exact_site, renamed_emit, renamed_site
from flowshunt_ebpf.kops.validation.decide import TIMEOUT, decide
from flowshunt_ebpf.kops.validation.ebpf_semantics import straight_end
from flowshunt_ebpf.kops.validation.forward import NotModelledError
from flowshunt_ebpf.kops.validation.obligations import Emit, Replacement, emit_obligation, site_obligation
from flowshunt_ebpf.kops.validation.obligations import decode as decode_machine_code
from flowshunt_ebpf.kops.validation.proof import EMIT, SITE, Proof, Refusal
from flowshunt_ebpf.kops.validation.solvers import SOLVERS
from flowshunt_ebpf.native import assembler
from flowshunt_ebpf.program import NativeForm, live_set, proof_token


@attrs.frozen
class Prover:
    """How proofs are made.

    Attributes:
        cache: where proofs are looked for, and kept; None: every one is made anew and kept nowhere.
        solvers: who must agree. Only what all of them have proved is kept in a cache.
        timeout: seconds that each solver has.
    """

    cache: ProofCache | None = attrs.field(factory=default_cache)
    solvers: tuple[str, ...] = SOLVERS
    timeout: float = TIMEOUT


def prove_emit(
    operation: ExtendedOperation,
    payload: int,
    architecture: str,
    features: frozenset[str],
    prover: Prover | None = None,
) -> Proof | Refusal:
    """Prove that the native form which a CPU with these features uses for a payload does what the proof sequence does.

    The text is assembled, the bytes are decoded again, and both solvers must find that for all values of registers and
    memory they leave what the proof sequence leaves, in every register but temporaries and scratch, and in memory.
    Raises CapabilityError where a solver, the assembler or the disassembler is not installed.
    """
    if prover is None:
        return _prove_emit_once(operation, payload, architecture, features)
    if why := operation.check_payload(payload):
        return Refusal(EMIT, f"the payload {payload:#x} is not valid: {why}")
    try:
        found = operation.emit(architecture, payload, features, BY_ARCHITECTURE[architecture])
    except Exception as error:
        return Refusal(EMIT, f"a native form of {operation.name} raised {type(error).__name__}: {error}")
    if found is None:
        return Refusal(EMIT, f"{operation.name} has no native form for these values on {architecture} here")
    return prove_form(operation, payload, architecture, *found, prover=prover)


@lru_cache(maxsize=8192)
def _prove_emit_once(
    operation: ExtendedOperation, payload: int, architecture: str, features: frozenset[str]
) -> Proof | Refusal:
    """Operations are pure and their text is: a second look gives the same."""
    return prove_emit(operation, payload, architecture, features, Prover())


def prove_form(
    operation: ExtendedOperation,
    payload: int,
    architecture: str,
    form: NativeEmit,
    text: str,
    prover: Prover | None = None,
) -> Proof | Refusal:
    """Prove one native form of an operation, whose text for a valid payload is given. Raises CapabilityError."""
    prover = prover or Prover()
    try:
        sequence = operation.proof_sequence(payload)
        use = operation.use(payload)
        disjoint = tuple(operation.assumes(operation.layout.decode(payload)))
    except Exception as error:
        return Refusal(EMIT, f"the proof sequence of {operation.name} raised {type(error).__name__}: {error}")
    if wrong := broken_rule(sequence, operation.max_instructions):
        return Refusal(EMIT, f"the proof sequence breaks a rule: {wrong}")
    try:
        code = _assembled(architecture, text)
    except ValueError as error:
        return Refusal(EMIT, str(error))
    if not 0 < len(code) <= operation.max_bytes:
        return Refusal(EMIT, f"the machine code has {len(code)} bytes, 1 to {operation.max_bytes} are declared")
    proof = _emit(Emit(architecture, sequence, (), use.clobbers, disjoint), code, prover)
    if not isinstance(proof, Proof):
        return proof
    changes = use.writes | use.clobbers
    token = proof_token(sequence, changes, architecture, code)
    return attrs.evolve(proof, form=NativeForm(architecture, form.features, code, token), disjoint=disjoint)


@lru_cache(maxsize=4096)
def _assembled(architecture: str, text: str) -> bytes:
    return assembler.assemble(architecture, text)


def _emit(emit: Emit, code: bytes, prover: Prover) -> Proof | Refusal:
    exact = digest(exact_emit(emit, code))
    if found := _kept(prover, exact):
        return Proof(EMIT, exact, source=found)
    try:
        emit = attrs.evolve(emit, code=decode_machine_code(emit.architecture, code))
        renamed = digest(renamed_emit(emit))
        if found := _kept(prover, renamed):
            _keep(prover, exact)
            return Proof(EMIT, renamed, source=found)
        result = decide(
            EMIT,
            renamed,
            lambda asked, plan: emit_obligation(emit, asked, plan),
            solvers=prover.solvers,
            timeout=prover.timeout,
        )
    except NotModelledError as error:
        return Refusal(EMIT, str(error))
    if isinstance(result, Proof):
        _keep(prover, renamed, exact)
    return result


def prove_site(
    original: Sequence[Instruction],
    rewritten: Sequence[Instruction],
    live_out: int,
    *,
    lost: Mapping[int, int] | None = None,
    disjoint: Sequence[Disjoint] = (),
    context: Sequence[Instruction] = (),
    prover: Prover | None = None,
) -> Proof | Refusal:
    """Prove that what replaces instructions of a program does what they did, as far as anything reads it afterwards.

    Args:
        original, rewritten: both entered at their first instruction and left past their last; jumps stay inside.
        live_out: what is live where both end, as in `program.live_set`. All of memory counts, whatever it says.
        lost: by index in `rewritten` (its length: the end), registers that native code leaves undefined there, one bit
            each.
        disjoint: ranges that are known not to overlap, from the values that registers have at the start.
        context: instructions that always run straight before either, the last one last: what they put into registers
            and memory may be needed. Looked at only where there is no proof without, and as far back as they have
            semantics here and don't jump.
        prover: how; None: as loading programs does.

    Raises CapabilityError where a solver is not installed.
    """
    prover = prover or Prover()
    lost = {index: mask for index, mask in (lost or {}).items() if mask}
    live = live_out & live_set.ALL_REGISTERS
    site = Replacement(tuple(original), tuple(rewritten), live, lost, tuple(disjoint))
    found = _site(site, prover)
    if isinstance(found, Proof):
        return found
    before = straight_end(context)
    if not before:
        return found
    with_context = _site(attrs.evolve(site, context=before), prover)
    return with_context if isinstance(with_context, Proof) else found


def _site(site: Replacement, prover: Prover) -> Proof | Refusal:
    exact = digest(exact_site(site))
    if site.original == site.rewritten and not site.lost:
        return Proof(SITE, exact, source="identical")
    if found := _kept(prover, exact):
        return Proof(SITE, exact, source=found, disjoint=site.disjoint)
    if prover.cache is not None and (refused := prover.cache.refusal(exact)) is not None:
        return refused
    renamed = digest(renamed_site(site))
    if found := _kept(prover, renamed):
        _keep(prover, exact)
        return Proof(SITE, renamed, source=found, disjoint=site.disjoint)
    try:
        result = decide(
            SITE,
            renamed,
            lambda asked, plan: site_obligation(site, asked, plan),
            solvers=prover.solvers,
            timeout=prover.timeout,
        )
    except NotModelledError as error:
        return Refusal(SITE, str(error))
    if isinstance(result, Proof):
        _keep(prover, renamed, exact)
        return attrs.evolve(result, disjoint=site.disjoint)
    if prover.cache is not None and set(prover.solvers) == set(SOLVERS):
        prover.cache.put_refusal(exact, result)
    return result


def _kept(prover: Prover, key: bytes) -> str | None:
    return prover.cache.find(key) if prover.cache is not None else None


def _keep(prover: Prover, *keys: bytes) -> None:
    if prover.cache is not None and set(prover.solvers) == set(SOLVERS):
        prover.cache.put(keys, source=PROCESS)
