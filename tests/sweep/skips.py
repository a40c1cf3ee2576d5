"""Every part of the sweep that is known not to equal CPU, with its reason. The only such list.

A skip excuses failures; it does not keep anything from running, and a skip that excused nothing fails its test.
"""

from dataclasses import dataclass

# Ops whose results are, wholly or in part, memory that nothing has written: only their metadata is compared.
UNINITIALISED: dict[str, str] = {}

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
    runs: bool = True  # False: it would take the process down


SKIPS: tuple[Skip, ...] = ()


def matching(name: str, dtype: str) -> list[Skip]:
    return [skip for skip in SKIPS if skip.name == name and (not skip.dtypes or dtype in skip.dtypes)]
