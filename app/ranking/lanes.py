"""A numba type of four float64 in one SIMD vector: strict arithmetic at vector speed.

Without fastmath a compiler must not reorder a sum, so it cannot vectorise a dot product. Here the
kernels choose the partial sums: a `Lanes` value is four float64 in one LLVM vector, and its
`+ - *` act lane by lane, each correctly rounded. The program, not the CPU, decides the lane of a
term: AVX and SSE2 give the same bits, and NEON should too. (numba's SLP vectoriser, which could
find such sums in scalar code, is off by default.)

The functions here check no bounds; the callers check the arrays.
"""

import operator
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import numba
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

if "scipy.linalg" not in sys.modules:
    # numba imports scipy's BLAS at its first compilation, which takes a quarter of a second. The
    # kernels never call BLAS, so hide scipy.linalg during this import.
    sys.modules["scipy.linalg"] = None  # type: ignore[assignment]
    try:
        import numba.np.arraymath
    finally:
        del sys.modules["scipy.linalg"]

WIDTH = 4

Compiled = Callable[..., Any]
#: An array in a kernel: numba knows its type, mypy does not.
Array: TypeAlias = Any


def kernel(function: Callable[..., Any]) -> Compiled:
    """Compile `function` as a kernel: strict IEEE, one thread, cached on disk, without the GIL.

    numba's cache notices changes only in the kernel's own file, so `app/runtime/jit_cache.py` uses
    one cache directory for each content of this package.
    """
    compiled: Compiled = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return compiled


def inlined(function: Callable[..., Any]) -> Compiled:
    """Inline `function` into its kernels: a call would pass every field of every array."""
    compiled: Compiled = numba.njit(inline="always", error_model="numpy")(function)
    return compiled


class LanesType(types.Type):
    """The numba type of four float64 in one vector register."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


LANES = LanesType()
VECTOR = ir.VectorType(ir.DoubleType(), WIDTH)


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, frontend: Any) -> None:
        super().__init__(manager, frontend, VECTOR)


def _lane(index: int) -> ir.Constant:
    return ir.Constant(ir.IntType(32), index)


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


def _broadcast(builder: Any, number: Any) -> Any:
    value = ir.Constant(VECTOR, ir.Undefined)
    for lane in range(WIDTH):
        value = builder.insert_element(value, number, _lane(lane))
    return value


def _widened(builder: Any, value: Any, to: Any) -> Any:
    return value if value.type == to else builder.fpext(value, to)


@intrinsic
def load(typing_context: Any, array: Any, index: Any) -> Any:
    """Load `array[index : index + 4]`; float32 is widened to float64, which is exact."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array_type = signature.args[0]
        address = _address(context, builder, array_type, arguments[0], arguments[1])
        element = context.get_data_type(array_type.dtype)
        vector = ir.VectorType(element, WIDTH)
        pointer = builder.bitcast(address, vector.as_pointer())
        value = builder.load(pointer, align=array_type.dtype.bitwidth // 8)
        return _widened(builder, value, VECTOR)

    return LANES(array, types.intp), generate


@intrinsic
def store(typing_context: Any, array: Any, index: Any, lanes: Any) -> Any:
    """Store `array[index : index + 4] = lanes`, for an array of float64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], arguments[0], arguments[1])
        builder.store(arguments[2], builder.bitcast(address, VECTOR.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, LANES), generate


@intrinsic
def fill(typing_context: Any, number: Any) -> Any:
    """Return the same number in all four lanes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _broadcast(builder, arguments[0])

    return LANES(types.float64), generate


@intrinsic
def spread(typing_context: Any, array: Any, index: Any) -> Any:
    """Return `array[index]` in all four lanes, without numba's check for a negative index."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], *arguments)
        return _broadcast(builder, builder.load(address))

    return LANES(array, types.intp), generate


@intrinsic
def total(typing_context: Any, lanes: Any) -> Any:
    """Return the sum of the four lanes, always as (0 + 2) + (1 + 3)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b, c, d = (builder.extract_element(arguments[0], _lane(i)) for i in range(WIDTH))
        return builder.fadd(builder.fadd(a, c), builder.fadd(b, d))

    return types.float64(LANES), generate


@intrinsic
def totals(typing_context: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Return `(total(a), total(b), total(c), total(d))` as lanes, with the bits of `total`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def pick(left: Any, right: Any, lanes: list[int]) -> Any:
            mask = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), lanes)
            return builder.shuffle_vector(left, right, mask)

        def halves(left: Any, right: Any) -> Any:  # l0+l2, l1+l3, r0+r2, r1+r3
            low, high = pick(left, right, [0, 1, 4, 5]), pick(left, right, [2, 3, 6, 7])
            return builder.fadd(low, high)

        ab, cd = halves(*arguments[:2]), halves(*arguments[2:])
        return builder.fadd(pick(ab, cd, [0, 2, 4, 6]), pick(ab, cd, [1, 3, 5, 7]))

    return LANES(LANES, LANES, LANES, LANES), generate


def _register_operator(operation: Callable[..., Any], instruction: str) -> None:
    """Make `lanes <operation> lanes` compile to one LLVM instruction."""

    @type_callable(operation)
    def typed(context: Any) -> Any:
        return lambda left, right: LANES if (left, right) == (LANES, LANES) else None

    @lower_builtin(operation, LANES, LANES)
    def lowered(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return getattr(builder, instruction)(*arguments)


_register_operator(operator.add, "fadd")
_register_operator(operator.sub, "fsub")
_register_operator(operator.mul, "fmul")
