"""What the corpus records of the kernel is what the kernel says now."""

from flowshunt_ebpf.kernel.judge import judge


def test_the_running_kernel_says_what_is_recorded(case, kernel):
    judgement = judge(case.program())
    assert judgement.accepted == case.kernel_accepts, judgement.reason
    if kernel == "Linux 6.18":
        assert case.kernel in judgement.log


def test_the_corpus_has_the_variants_that_were_asked_for(cases):
    of_objects = [case for case in cases if case.base]
    assert sum(not case.accepted for case in of_objects) >= 60
    assert sum(case.accepted for case in of_objects) >= 30
    assert len({case.rule for case in cases if not case.accepted}) >= 25
    assert len({case.name for case in cases}) == len(cases)
