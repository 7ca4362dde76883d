import pytest

from flowshunt_ebpf.testing.native_code import compile_everything


@pytest.fixture(scope="session", autouse=True)
def native_code() -> None:
    """All at once is faster than one after another as tests come to need it."""
    compile_everything()
