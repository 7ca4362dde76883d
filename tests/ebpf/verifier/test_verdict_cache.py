"""Verdicts kept between runs count for the same program alone, and only if nobody touched them."""

import attrs
import pytest

from flowshunt_ebpf.asm import assemble
from flowshunt_ebpf.contexts.layout import TC, XDP
from flowshunt_ebpf.native.verdict import digest
from flowshunt_ebpf.verifier import Limits, cache, verify, verify_cached

TEXT = ".type xdp\n.map m array key=4 value=8 entries=4\ncall bpf_get_prandom_u32\nr0 &= 1\nexit"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FLOWSHUNT_CACHE", str(tmp_path))
    return tmp_path / "verdicts"


def kept(folder):
    return [file for file in folder.iterdir() if file.name != "key"]


def looked_at(program, **more):
    return verify_cached(program, **more).effort.instructions > 0


def test_a_second_load_takes_the_same_verdict(folder):
    first, second = verify_cached(assemble(TEXT)), verify_cached(assemble(TEXT))
    assert first.effort.instructions
    assert not second.effort.instructions
    assert second == first == verify(assemble(TEXT))
    assert second.is_issued


def test_a_rejection_is_found_anew(folder):
    program = assemble(".type xdp\nr0 = r9\nexit")
    assert not verify_cached(program).accepted
    assert not kept(folder)


def test_whatever_a_verdict_depends_on_asks_for_another(folder):
    program = assemble(TEXT)
    assert looked_at(program)
    (m,) = program.maps
    for other in (
        assemble(TEXT.replace("&= 1", "&= 2")),
        attrs.evolve(program, maps=(attrs.evolve(m, value_size=16),)),
        attrs.evolve(program, maps=(attrs.evolve(m, value_type_id=3),)),
        attrs.evolve(program, license="Proprietary"),
        attrs.evolve(program, poisoned={0: "it lacks a field"}),
    ):
        if verify(other).accepted:
            assert looked_at(other)
    assert looked_at(program, context=TC)
    assert looked_at(program, limits=Limits(instructions=10))
    assert not looked_at(program)


def test_the_files_are_the_users_own(folder):
    verify_cached(assemble(TEXT))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}


def test_a_verdict_that_was_touched_counts_for_nothing(folder):
    program = assemble(TEXT)
    verify_cached(program)
    (file,) = kept(folder)
    whole = file.read_bytes()
    for data in (b"", whole[:31], whole[:-1], whole[:-1] + b" ", bytes(32) + whole[32:], whole.replace(b"1", b"0", 1)):
        file.write_bytes(data)
        assert looked_at(program)
        assert file.read_bytes() == whole


def test_a_verdict_of_another_program_counts_for_nothing(folder):
    program, unsafe = assemble(TEXT), assemble(".type xdp\ncall bpf_get_prandom_u32\nr0 = *(u64 *)(r0 + 0)\nexit")
    verify_cached(program)
    (file,) = kept(folder)
    name = cache._name(unsafe, XDP, Limits(), digest(unsafe, XDP))
    (folder / name).write_bytes(file.read_bytes())
    assert not verify_cached(unsafe).accepted


def test_a_verdict_with_another_key_counts_for_nothing(folder):
    program = assemble(TEXT)
    verify_cached(program)
    (folder / "key").write_bytes(bytes(32))
    assert looked_at(program)


def test_a_key_that_others_can_read_is_made_anew(folder):
    program = assemble(TEXT)
    verify_cached(program)
    old = (folder / "key").read_bytes()
    (folder / "key").chmod(0o644)
    assert looked_at(program)
    assert (folder / "key").read_bytes() != old
    assert not looked_at(program)
