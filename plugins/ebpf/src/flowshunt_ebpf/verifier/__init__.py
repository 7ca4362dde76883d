"""The verifier: whether a program is safe to run natively, found without privilege and without running it.

`verify` follows every path of a program. What a register or a stack byte may hold is a value of the domains (`scalar`
for numbers, `values` for pointers); transformers say what each instruction makes of it (`arithmetic`, `transfer`,
`branches`, `functions`); checkers say what must hold (`memory`, `helper_calls`, `structure`, `stack_depth`).
"""

from flowshunt_ebpf.verifier.cache import verify_cached
from flowshunt_ebpf.verifier.facts import Facts
from flowshunt_ebpf.verifier.limits import Limits
from flowshunt_ebpf.verifier.rejection import Rejection, Step
from flowshunt_ebpf.verifier.verdict import Effort, VerifierVerdict
from flowshunt_ebpf.verifier.verify import verify

__all__ = ["Effort", "Facts", "Limits", "Rejection", "Step", "VerifierVerdict", "verify", "verify_cached"]
