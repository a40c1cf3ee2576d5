"""Every part of the sweep that is known not to equal CPU, with its reason. The only such list.

A skip excuses failures; it keeps nothing from running, and one that is needed no longer fails its test.
"""

from dataclasses import dataclass

# Ops that take their tensor arguments beside the first on the host, whatever the device (torch checks it).
HOST_ARGUMENTS: dict[str, str] = {
    "tensor_split": "indices and sections are read while the views are made",
}


@dataclass(frozen=True)
class Skip:
    name: str  # as the test's id has it, without the dtype
    reason: str
    dtypes: tuple[str, ...] = ()  # all where empty
    parts: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    words: str = ""  # what the failure must say
    always: bool = True  # False: it may also turn out equal


LAPACK = "CPU's own bits vary: MKL's xGELSY depends on where in memory its work space lies"
SPARSE = "sparse tensors have no kernels on the device"

SKIPS: tuple[Skip, ...] = (
    Skip("linalg.lstsq", LAPACK, words="values differ", always=False),
    Skip("linalg.lstsq.grad_oriented", LAPACK, words="values differ", always=False),
    Skip("to_sparse", SPARSE),
    Skip("sparse.sampled_addmm", SPARSE),
    Skip("sparse.mm.reduce", SPARSE),
    Skip("SparseAdam-default", SPARSE),
)


def matching(name: str, dtype: str) -> list[Skip]:
    return [skip for skip in SKIPS if skip.name == name and (not skip.dtypes or dtype in skip.dtypes)]
