"""The file of proofs that is shipped is whole, of these sources, and of the operations that are installed."""

import hashlib
from importlib import resources

import pytest

from flowshunt.host_registers import BY_ARCHITECTURE
from flowshunt.plugins import load_plugins
from flowshunt_ebpf.kops.validation import Proof, Prover, prove_form, shipped
from flowshunt_ebpf.kops.validation.cache import DIGEST_BYTES, PACKAGE, SHIPPED, ProofCache, version
from flowshunt_ebpf.kops.validation.campaign import LIMIT
from flowshunt_ebpf.kops.validation.payloads import payloads

REBUILD = "flowshunt bpf prove --all --rebuild makes it anew"
FORMS = [
    pytest.param(operation, architecture, number, id=f"{name}-{architecture}-{number}")
    for name, operation in sorted(load_plugins().operations.items())
    for architecture, forms in operation.emits.items()
    for number in range(len(forms))
]


def content():
    return resources.files(PACKAGE).joinpath(shipped.FILE).read_bytes()


def test_its_hash_is_the_one_in_the_code():
    assert hashlib.sha256(content()).hexdigest() == shipped.SHA256, REBUILD


def test_it_was_made_by_these_sources():
    assert content()[:DIGEST_BYTES] == version(), REBUILD


def test_its_digests_stand_in_order_so_that_they_are_found():
    body = content()[DIGEST_BYTES:]
    digests = [body[at : at + DIGEST_BYTES] for at in range(0, len(body), DIGEST_BYTES)]
    assert digests == sorted(set(digests)) and len(digests[-1]) == DIGEST_BYTES
    assert len(digests) <= sum(shipped.COUNTS.values())


@pytest.mark.parametrize(("operation", "architecture", "number"), FORMS)
def test_every_form_of_every_operation_is_in_it(operation, architecture, number):
    """A few of its payloads: none is left to the solvers."""
    form = operation.emits[architecture][number]
    registers = BY_ARCHITECTURE[architecture]

    def text(payload):
        return form.assembly(operation.layout.decode(payload), registers)

    some = payloads(operation, LIMIT, lambda payload: bool(text(payload)))[:5]
    assert some
    for payload in some:
        found = prove_form(operation, payload, architecture, form, text(payload), Prover(ProofCache(None)))
        assert isinstance(found, Proof) and found.source == SHIPPED, REBUILD
