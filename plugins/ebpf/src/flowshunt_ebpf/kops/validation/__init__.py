"""Validation: every rewrite and every native form is proved equal to what it stands for, or is not used.

Neither recognizers nor policies nor native forms are trusted: `prove_site` decides whether what replaces a program's
instructions does the same, `prove_emit` whether machine code does what a proof sequence says. Both are decided for all
inputs by two solvers that must agree.
"""

from flowshunt_ebpf.kops.validation.proof import Proof, Refusal
from flowshunt_ebpf.kops.validation.prove import Prover, prove_emit, prove_form, prove_site

__all__ = ["Proof", "Prover", "Refusal", "prove_emit", "prove_form", "prove_site"]
