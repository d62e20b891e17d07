"""A replay must be bit-equal on any CPU: the digest is the same for several simulated CPUs.

Environment variables make BLAS use the code of other CPUs, disable FMA and AVX2 in the C library,
and compile the kernels for the oldest CPU of this architecture, which has no fused multiply-add.
"""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from app.ranking import bounds, kernels, measures, sparse
from app.ranking.baselines import committee, pamir, perceptron, prank

OLDEST = {"x86_64": "x86-64", "AMD64": "x86-64"}.get(platform.machine(), "generic")

CPUS: list[Mapping[str, str]] = [
    {"OPENBLAS_CORETYPE": "Prescott"},
    {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-AVX2"},
]
#: The last one compiles all kernels.
OTHER_CPUS: list[Mapping[str, str]] = [
    {"OPENBLAS_CORETYPE": "Haswell"},
    {"OPENBLAS_CORETYPE": "SkylakeX"},
    {"NUMBA_CPU_NAME": OLDEST, "NUMBA_CPU_FEATURES": ""},
]


def digest(environment: Mapping[str, str]) -> str:
    command = [sys.executable, "-m", "tests.bits"]
    ran = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    assert re.fullmatch(r"[0-9a-f]{128}\n", ran.stdout)
    return ran.stdout


@pytest.fixture(scope="module")
def native_digest() -> str:
    return digest({})


@pytest.mark.parametrize(
    "environment",
    [*CPUS, *(pytest.param(one, marks=pytest.mark.slow) for one in OTHER_CPUS)],
    ids=lambda some: "-".join(some.values()),
)
def test_every_simulated_cpu_computes_the_same_bits(
    environment: Mapping[str, str], native_digest: str
) -> None:
    assert digest(environment) == native_digest


def test_kernels_run_on_one_thread_without_fastmath() -> None:
    modules = (kernels, bounds, sparse, measures, committee, pamir, perceptron, prank)
    compiled = [value for module in modules for value in vars(module).values() if is_kernel(value)]
    assert kernels.second_order in compiled
    for kernel in compiled:
        assert not kernel.targetoptions.get("fastmath")
        assert not kernel.targetoptions.get("parallel")


def is_kernel(value: Any) -> bool:
    return hasattr(value, "targetoptions")
