"""Policies: saved measurements, and what a measurement decides."""

import attrs
import pytest

from flowshunt.errors import InputError
from flowshunt_ebpf.asm import assemble
from flowshunt_ebpf.kops.optimize import Target, optimize
from flowshunt_ebpf.kops.policy import Plan, Policy, load_plan, program_digest, save_plan
from flowshunt_ebpf.kops.profile import profile
from flowshunt_ebpf.kops.rewrite import Place
from flowshunt_ebpf.native.measure import Timing
from flowshunt_ebpf.testing.sample_operations import LEAST, SPIN, Believer

TARGET = Target("x86_64", frozenset({"bmi2"}))
TEXT = """
    r2 = r1
    r2 <<= 13
    r1 >>= 51
    r1 |= r2
    r4 = r3
    r4 <<= 7
    r3 >>= 57
    r3 |= r4
    if r1 > r3 goto +1
    r3 = r1
    r0 = r3
    exit
"""
PROGRAM = assemble(TEXT)
OPERATIONS = {"spin": SPIN, "least": LEAST}
FIRST, SECOND = (
    Place("spin", SPIN.layout.encode(dst=1, src=1, tmp=2, amount=13, wide=1), 3),
    Place("spin", SPIN.layout.encode(dst=3, src=3, tmp=4, amount=7, wide=1), 7),
)
SMALLER = Place("least", LEAST.layout.encode(dst=3, other=1), 9)


def build(sites):
    plan = Plan("", "", "", (), "", {}, tuple(sites or ()))
    policy = Policy.ALL if sites is None else Policy.PROFILE
    return optimize(
        PROGRAM,
        policy=policy,
        plan=None if sites is None else plan,
        operations=OPERATIONS,
        target=TARGET,
        prover=Believer(),
        checked=False,
    )


def speeds(gains, noise=0.0):
    """A measurement in which each site makes the program as many times as fast as `gains` says."""
    asked = []

    def measure(variants):
        asked.append(list(variants))
        found = {}
        for name, program in variants.items():
            ratio = 1.0
            for site in program.sites:
                ratio *= gains[site.operation, site.payload]
            if name.endswith("again"):
                ratio += noise
            found[name] = Timing(name, 10.0 / ratio, 1.0, ratio, ratio, ratio)
        return found

    return measure, asked


def decide(first, second, smaller, noise=0.0, counts=None):
    gains = {(p.operation, p.payload): g for p, g in ((FIRST, first), (SECOND, second), (SMALLER, smaller))}
    measure, asked = speeds(gains, noise)
    return profile(PROGRAM, build, measure, TARGET, counts), asked


def test_what_gains_is_kept_and_what_loses_is_not():
    found, _ = decide(1.2, 1.1, 0.9)
    assert set(found.plan.sites) == {FIRST, SECOND}
    assert found.plan.ratio == pytest.approx(1.32)
    assert found.plan.families == {"spin": pytest.approx(1.32), "least": pytest.approx(0.9)}
    assert [site.operation for site in found.chosen.program.sites] == ["spin", "spin"]


def test_a_losing_site_of_a_gaining_family_is_left_out():
    found, _ = decide(1.3, 0.95, 1.0)
    assert FIRST in found.plan.sites
    assert SECOND not in found.plan.sites


def test_a_gaining_site_of_a_losing_family_is_kept():
    found, _ = decide(1.05, 0.7, 1.0)
    assert found.plan.sites == (FIRST,)


def test_what_gains_less_than_the_noise_is_not_kept():
    found, _ = decide(1.03, 1.0, 1.0, noise=0.05)
    assert found.plan.sites == ()
    assert found.plan.ratio == 1.0
    assert found.chosen.program.encode() == PROGRAM.encode()


def test_sites_that_never_run_are_not_measured_one_by_one():
    counts = [1] * 4 + [0] * 8
    _, asked = decide(1.2, 1.2, 1.2, counts=counts)
    assert [name for name in asked[0] if " at " in name] == ["spin at 3, site 0"]


def test_a_program_without_sites_is_not_measured():
    plain = assemble("r0 = 0\nexit")

    def without(sites):
        return optimize(plain, policy=Policy.ALL, operations=OPERATIONS, target=TARGET, prover=Believer())

    found = profile(plain, without, lambda variants: pytest.fail("measured"), TARGET)
    assert found.plan.sites == ()


PLAN = Plan(
    program_digest(PROGRAM), "main", "x86_64", ("bmi2",), "some processor", {"spin": 1.25}, (FIRST, SECOND), 1.25, 0.01
)


def test_a_saved_policy_is_read_back(tmp_path):
    save_plan(PLAN, str(tmp_path / "plan.json"))
    assert load_plan(str(tmp_path / "plan.json")) == PLAN


def test_a_saved_policy_gives_its_sites():
    found = optimize(PROGRAM, policy=Policy.PROFILE, plan=PLAN, operations=OPERATIONS, target=TARGET, prover=Believer())
    assert found.rewritten.places == (FIRST, SECOND)


@pytest.mark.parametrize(
    ("program", "target", "reason"),
    [
        (assemble("r0 = 1\nexit"), TARGET, "about other instructions"),
        (PROGRAM, Target("arm64", frozenset()), "measured on x86_64 with bmi2"),
        (PROGRAM, Target("x86_64", frozenset()), "measured on x86_64 with bmi2"),
    ],
)
def test_a_saved_policy_about_something_else_is_refused(program, target, reason):
    with pytest.raises(InputError, match=reason):
        optimize(program, policy=Policy.PROFILE, plan=PLAN, operations=OPERATIONS, target=target, prover=Believer())


def test_the_policy_profile_needs_a_measurement():
    with pytest.raises(InputError, match="needs a measurement"):
        optimize(PROGRAM, policy=Policy.PROFILE, operations=OPERATIONS, target=TARGET, prover=Believer())


def test_an_operation_that_is_not_installed_is_named_with_those_that_are():
    with pytest.raises(InputError, match=r"no extended operation 'spun'.*installed: spin, least"):
        optimize(PROGRAM, names=["spun"], operations=OPERATIONS, target=TARGET, prover=Believer())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": 2}',
        "[" * 100000,
        '{"format": 1, "sites": 3}',
        "\ud800".encode("utf-8", "ignore").decode(),
    ],
)
def test_what_is_no_saved_policy_is_refused_with_its_file(tmp_path, text):
    file = tmp_path / "plan.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"plan\.json"):
        load_plan(str(file))
    with pytest.raises(InputError, match=r"nothing\.json"):
        load_plan(str(tmp_path / "nothing.json"))


def test_two_operations_that_share_an_id_are_refused():
    from flowshunt_ebpf.kops.registry import by_id

    with pytest.raises(InputError, match="share the id"):
        by_id([SPIN, attrs.evolve(SPIN)])
