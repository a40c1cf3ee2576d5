"""The policy constants, read and set by name: `config.max_region_ops = 256` or `config["max_region_ops"]`."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from . import _native
from ._env import Variable, policy_variable
from ._reasons import flush_reason_index


@dataclass(frozen=True)
class Policy:
    index: int
    name: str
    initial: int
    low: int
    high: int
    why: str

    @property
    def variable(self) -> Variable:
        return policy_variable(self.name, self.initial, self.low, self.high, self.why)


@cache
def policies() -> dict[str, Policy]:
    """The native library's table."""
    lib = _native.lib
    table = {}
    for index, row in enumerate(_native.rows("ae_policy", lib.ae_policy_count, lib.ae_policy_describe)):
        name = _native.text(row.name)
        table[name] = Policy(index, name, row.initial, row.low, row.high, _native.text(row.why))
    return table


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, policies(), 1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(policies())}"
    return f"no policy constant is named {name!r}, {hint}"


class Config:
    def __getitem__(self, name: str) -> int:
        if name not in policies():
            raise KeyError(_unknown(name))
        return int(_native.lib.ae_policy_get(policies()[name].index))

    def __setitem__(self, name: str, value: int) -> None:
        if name not in policies():
            raise KeyError(_unknown(name))
        policy = policies()[name]
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} is {value!r}, expected an integer from {policy.low} to {policy.high}")
        if not policy.low <= value <= policy.high:
            raise ValueError(f"{name} is {value}, expected {policy.low} to {policy.high}")
        _native.check(_native.lib.ae_flush(flush_reason_index("mode_change")))
        _native.check(_native.lib.ae_policy_set(policy.index, value))

    def __getattr__(self, name: str) -> int:
        if name.startswith("_") or name not in policies():
            raise AttributeError(_unknown(name) if not name.startswith("_") else name)
        return self[name]

    def __setattr__(self, name: str, value: int) -> None:
        if name not in policies():
            raise AttributeError(_unknown(name))
        self[name] = value

    def __iter__(self) -> Iterator[str]:
        return iter(policies())

    def __len__(self) -> int:
        return len(policies())

    def __dir__(self) -> list[str]:
        return [*policies(), "as_dict"]

    def __repr__(self) -> str:
        return f"config({', '.join(f'{name}={value}' for name, value in self.as_dict().items())})"

    def as_dict(self) -> dict[str, int]:
        return {name: self[name] for name in policies()}


config = Config()
