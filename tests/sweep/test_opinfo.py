"""Every OpInfo entry and dtype: forward, backward, in place, out=, refused inputs."""

import pytest
from torch.testing._internal.common_methods_invocations import op_db

from .op_cases import OpCases, dtype_name, error_cases, op_name, pairs
from .report import settle

PAIRS = [pytest.param(op, dtype, id=f"{op_name(op)}-{dtype_name(dtype)}") for op, dtype in pairs()]
REFUSING = [pytest.param(op, id=op_name(op)) for op in op_db if op.error_inputs_func is not None]


@pytest.mark.parametrize(("op", "dtype"), PAIRS)
def test_op(op, dtype, record_property):
    settle("op", op_name(op), dtype_name(dtype), lambda: OpCases(op, dtype).cases(), record_property)


@pytest.mark.parametrize("op", REFUSING)
def test_refused(op, record_property):
    settle("refused", op_name(op), "", lambda: error_cases(op), record_property)
