"""A cache gives back what was proved, and nothing that anybody else put there or that was damaged."""

import warnings

import pytest

from flowshunt.errors import FlowshuntWarning
from flowshunt.insn import ADD, alu64, mov64
from flowshunt_ebpf.kops.validation import Proof, Prover, Refusal, cache, prove_emit, prove_site, shipped
from flowshunt_ebpf.kops.validation.cache import DIGEST_BYTES, ProofCache, digest, shipped_bytes, version
from flowshunt_ebpf.program import live_set, proof_token
from flowshunt_einsn_rotate.operation import OPERATION as ROTATE

PAYLOAD = ROTATE.layout.encode(dst=1, src=2, count=2, shifted=3, negated=15, amount=13, by_register=0, right=0, wide=1)
OTHERS = ROTATE.layout.encode(dst=6, src=7, count=7, shifted=8, negated=15, amount=13, by_register=0, right=0, wide=1)
KEY = digest(b"something proved")


def proved(prover, payload=PAYLOAD):
    return prove_emit(ROTATE, payload, "x86_64", frozenset(), prover)


def test_a_proof_is_found_again_in_the_process_and_after_it(tmp_path):
    first = proved(Prover(ProofCache(tmp_path / "proofs", use_shipped=False)))
    assert first.source == "solved" and len(first.solvers) == 2
    again = Prover(ProofCache(tmp_path / "proofs", use_shipped=False))
    assert proved(again).source == "user"
    assert proved(again).form == first.form


def test_a_proof_serves_for_other_registers_with_their_own_bytes(tmp_path):
    prover = Prover(ProofCache(tmp_path / "proofs", use_shipped=False))
    first, other = proved(prover), proved(prover, OTHERS)
    assert other.source == "process" and other.form.code != first.form.code
    use = ROTATE.use(OTHERS)
    sequence = ROTATE.proof_sequence(OTHERS)
    assert other.form.token == proof_token(sequence, use.writes | use.clobbers, "x86_64", other.form.code)


def test_refusals_are_kept_nowhere(tmp_path):
    prover = Prover(ProofCache(tmp_path / "proofs", use_shipped=False))
    for _ in range(2):
        refused = prove_site([mov64(1, 2)], [mov64(1, 3)], live_set.whole(1), prover=prover)
        assert isinstance(refused, Refusal)
    assert not (tmp_path / "proofs").exists()


@pytest.mark.parametrize("solver", ["z3", "bitwuzla"])
def test_what_one_solver_proves_is_kept_nowhere(tmp_path, solver):
    prover = Prover(ProofCache(tmp_path / "proofs", use_shipped=False), (solver,))
    assert [proved(prover).source for _ in range(2)] == ["solved", "solved"]
    assert not (tmp_path / "proofs").exists()


def test_a_key_says_everything_that_a_proof_is_about(tmp_path):
    """Whatever differs, the proof of the one is not found for the other."""
    prover = Prover(ProofCache(None, use_shipped=False))
    original, rewritten = (alu64(ADD, 1, 2), mov64(3, 1)), (mov64(3, 1), alu64(ADD, 3, 2))
    assert isinstance(prove_site(original, rewritten, live_set.whole(3), prover=prover), Proof)
    assert isinstance(prove_site(original, rewritten, live_set.whole(1), prover=prover), Refusal)
    assert isinstance(prove_site(original, rewritten, live_set.whole(3), lost={2: 8}, prover=prover), Refusal)
    assert isinstance(prove_site(rewritten, original, live_set.whole(1), prover=prover), Refusal)
    assert isinstance(prove_site(original, rewritten[:1], live_set.whole(3), prover=prover), Refusal)


def test_the_semantics_are_part_of_every_key(monkeypatch):
    before = digest(b"x")
    monkeypatch.setattr(cache, "version", lambda: bytes(32))
    assert digest(b"x") != before


def test_a_damaged_record_is_left_out(tmp_path):
    file = tmp_path / "proofs"
    ProofCache(file, use_shipped=False).put([KEY, digest(b"another")])
    content = bytearray(file.read_bytes())
    content[5] ^= 1
    file.write_bytes(content)
    found = ProofCache(file, use_shipped=False)
    assert found.find(KEY) is None and found.find(digest(b"another")) == "user"
    assert found.find(bytes(content[:DIGEST_BYTES])) is None


def test_a_torn_write_costs_no_other_record(tmp_path):
    file = tmp_path / "proofs"
    ProofCache(file, use_shipped=False).put([KEY])
    file.write_bytes(file.read_bytes() + b"torn")
    ProofCache(file, use_shipped=False).put([digest(b"another")])
    found = ProofCache(file, use_shipped=False)
    assert found.find(KEY) == found.find(digest(b"another")) == "user"


def test_a_file_that_others_can_write_to_is_not_used(tmp_path):
    file = tmp_path / "proofs"
    ProofCache(file, use_shipped=False).put([KEY])
    file.chmod(0o666)
    assert ProofCache(file, use_shipped=False).find(KEY) is None


def test_a_link_is_not_followed(tmp_path):
    ProofCache(tmp_path / "elsewhere", use_shipped=False).put([KEY])
    (tmp_path / "proofs").symlink_to(tmp_path / "elsewhere")
    assert ProofCache(tmp_path / "proofs", use_shipped=False).find(KEY) is None


def test_a_folder_that_is_gone_costs_nothing_but_time(tmp_path):
    found = ProofCache(tmp_path / "none" / "proofs", use_shipped=False)
    found.put([KEY])
    assert found.find(KEY) == "process"


@pytest.fixture
def shipping(monkeypatch, tmp_path):
    """Ship some content under some hash."""

    def ship(content, sha256):
        import hashlib

        (tmp_path / shipped.FILE).write_bytes(content)
        monkeypatch.setattr(cache.resources, "files", lambda package: tmp_path)
        monkeypatch.setattr(shipped, "SHA256", sha256 or hashlib.sha256(content).hexdigest())
        cache._shipped.cache_clear()

    version()  # before the folder is another
    yield ship
    cache._shipped.cache_clear()


def test_the_shipped_file_is_used_where_its_hash_is_the_one_in_the_code(shipping):
    shipping(shipped_bytes([KEY, digest(b"more")]), None)
    assert ProofCache(None).find(KEY) == "shipped"
    assert ProofCache(None).find(digest(b"other")) is None


@pytest.mark.parametrize(
    ("content", "sha256", "why"),
    [
        (lambda: shipped_bytes([KEY]), "0" * 64, "not the one that was released"),
        (lambda: b"", "0" * 64, "not the one that was released"),
        (lambda: bytes(32) + KEY, None, "made with other semantics"),
    ],
)
def test_another_shipped_file_is_not_used_and_that_is_told(shipping, content, sha256, why):
    shipping(content(), sha256)
    with pytest.warns(FlowshuntWarning, match=why):
        assert ProofCache(None).find(KEY) is None


def test_without_a_shipped_file_nothing_is_told(shipping, monkeypatch):
    shipping(b"", None)
    monkeypatch.setattr(shipped, "SHA256", "")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ProofCache(None).find(KEY) is None


def test_a_refused_site_is_not_asked_about_again_in_the_process():
    prover = Prover(ProofCache(None, use_shipped=False))
    first, again = (prove_site([mov64(1, 2)], [mov64(1, 3)], live_set.whole(1), prover=prover) for _ in range(2))
    assert isinstance(first, Refusal) and again is first
    anew = Prover(ProofCache(None, use_shipped=False))
    assert prove_site([mov64(1, 2)], [mov64(1, 3)], live_set.whole(1), prover=anew) is not first
