"""The update loops of SOLAR-I and SOLAR-II, for dense rows.

Conventions of all kernels:

- A batch is `gap_t = preferred[p_t] - other[o_t]` for t = 0, 1, ... in this order. The matrices are
  flat, row after row of `n` values (float32 or float64). For the pairs of one ranking both matrices
  are the same; for a stream of gaps `other` is one zero row.
- `w`, `x`, `s`, `u`, `sigma` are float64, padded with zeros to a multiple of 8, 64-byte aligned.
- A sum over a row has nine partial sums: feature k goes to sum k mod 8, but the last n mod 4
  features go to a ninth. They are added as (((0+4) + (2+6)) + ((1+5) + (3+7))) + 8. Dense and
  sparse rows use the same sums, so both give the same bits.
- The full covariance is stored as four-row *panels* of its lower triangle (`covariance.py`). `u`
  holds the outer product of the last step. The pass that multiplies for the next step subtracts
  it: one read and one write of the triangle a step.
- `loss[t]` gets the hinge loss before the step, `outcome[t]` the outcome, and `variance[t]` of a
  STEPPED pair `x·Σx` before the step (`x·x` for SOLAR-I, whose Σ is I). A kernel never raises: a
  pair with a non-finite or too large gap is REFUSED and changes nothing.
- An update loop returns the largest `x·x` of the gaps that are not too large.
- Kernels do not check bounds; `solar.py` does.
"""

from math import sqrt
from typing import Any

import numpy as np

from app.ranking.lanes import Array, fill, inlined, kernel, load, spread, store, total, totals

PASSIVE, STEPPED, REFUSED = 0, 1, 2

#: Refuse a gap whose squared norm is above this (or NaN). Two float32 rows of 10**7 features stay
#: below it, and no operation of a step overflows below it.
LARGEST_SQUARED_NORM = 1e100
#: Refuse a gap if the step would leave less variance along it than this share of the variance of
#: the single features: in float64 only rounding errors would remain.
LEAST_SHARE = 1e-13


@kernel
def score(w: Array, n: int, documents: Array, scores: Array) -> None:
    """`scores[d] = w · documents[d]` for dense rows."""
    fours, eights = n - n % 4, n - n % 8
    for d in range(scores.shape[0]):
        row = d * n
        even = odd = fill(0.0)
        for k in range(0, eights, 8):
            even = even + load(w, k) * load(documents, row + k)
            odd = odd + load(w, k + 4) * load(documents, row + k + 4)
        if eights < fours:
            even = even + load(w, eights) * load(documents, row + eights)
        rest = 0.0
        for k in range(fours, n):
            rest += w[k] * np.float64(documents[row + k])
        scores[d] = total(even + odd) + rest


@inlined
def gap(w: Array, n: int, preferred: Array, p: int, other: Array, o: int, x: Array) -> Any:
    """Write `x = preferred[p] - other[o]` and return `(w·x, x·x)`, in one pass."""
    fours, eights = n - n % 4, n - n % 8
    row, base = p * n, o * n
    dot_even = dot_odd = norm_even = norm_odd = fill(0.0)
    for k in range(0, eights, 8):
        a = load(preferred, row + k) - load(other, base + k)
        b = load(preferred, row + k + 4) - load(other, base + k + 4)
        store(x, k, a)
        store(x, k + 4, b)
        dot_even, norm_even = dot_even + load(w, k) * a, norm_even + a * a
        dot_odd, norm_odd = dot_odd + load(w, k + 4) * b, norm_odd + b * b
    if eights < fours:
        a = load(preferred, row + eights) - load(other, base + eights)
        store(x, eights, a)
        dot_even, norm_even = dot_even + load(w, eights) * a, norm_even + a * a
    dot_rest = norm_rest = 0.0
    for k in range(fours, n):
        x[k] = last = np.float64(preferred[row + k]) - np.float64(other[base + k])
        dot_rest, norm_rest = dot_rest + w[k] * last, norm_rest + last * last
    return total(dot_even + dot_odd) + dot_rest, total(norm_even + norm_odd) + norm_rest


@inlined
def judge(margin: float, squared_norm: float) -> Any:
    """Return the hinge loss `max(0, 1 - w·x)` and the outcome; a zero gap is PASSIVE."""
    if not squared_norm <= LARGEST_SQUARED_NORM:
        return 0.0, REFUSED
    hinge = 1.0 - margin
    if hinge > 0.0:
        return hinge, STEPPED if squared_norm > 0.0 else PASSIVE
    return 0.0, PASSIVE


@inlined
def larger(largest: float, squared_norm: float) -> float:
    """Return the larger one, unless the gap is refused as too large."""
    return squared_norm if largest < squared_norm <= LARGEST_SQUARED_NORM else largest


@kernel
def first_order(
    w: Array,
    n: int,
    C: float,
    preferred: Array,
    p: Array,
    other: Array,
    o: Array,
    omega: Array,
    x: Array,
    loss: Array,
    outcome: Array,
    variance: Array,
) -> float:
    """SOLAR-I, eqs. 5-6: `λ = ℓ / (‖x‖² + 1/(2ωC))`, `w ← w + λx`."""
    largest = 0.0
    for t in range(p.shape[0]):
        margin, squared_norm = gap(w, n, preferred, p[t], other, o[t], x)
        largest = larger(largest, squared_norm)
        hinge, verdict = judge(margin, squared_norm)
        loss[t], outcome[t] = hinge, verdict
        if verdict == STEPPED:
            variance[t] = squared_norm
            step = fill(hinge / (squared_norm + 1.0 / (2.0 * (omega[t] * C))))
            for k in range(0, w.shape[0], 4):
                store(w, k, load(w, k) + step * load(x, k))
    return largest


@inlined
def settled(panels: Array, at: int, ui: Any, uj: Any) -> Any:
    """Return four elements of a row of `Σ - u uᵀ`, and write them back."""
    row = load(panels, at) - ui * uj
    store(panels, at, row)
    return row


@kernel
def multiply(panels: Array, u: Array, x: Array, s: Array) -> None:
    """`Σ ← Σ - u uᵀ` and `s = Σx` in one pass over the panels (see `covariance.py`).

    A block below the diagonal also represents its mirror image: its rows are multiplied into the
    four sums, its columns into `s`. A diagonal block is stored whole: its columns suffice.
    """
    row0 = 0
    for i in range(0, x.shape[0], 4):
        row1, row2, row3 = row0 + i + 4, row0 + 2 * (i + 4), row0 + 3 * (i + 4)
        u0, u1, u2, u3 = spread(u, i), spread(u, i + 1), spread(u, i + 2), spread(u, i + 3)
        x0, x1, x2, x3 = spread(x, i), spread(x, i + 1), spread(x, i + 2), spread(x, i + 3)
        sum0 = sum1 = sum2 = sum3 = fill(0.0)
        for j in range(0, i, 4):
            uj, xj = load(u, j), load(x, j)
            v0, v1 = settled(panels, row0 + j, u0, uj), settled(panels, row1 + j, u1, uj)
            v2, v3 = settled(panels, row2 + j, u2, uj), settled(panels, row3 + j, u3, uj)
            sum0, sum1 = sum0 + v0 * xj, sum1 + v1 * xj
            sum2, sum3 = sum2 + v2 * xj, sum3 + v3 * xj
            store(s, j, load(s, j) + ((v0 * x0 + v1 * x1) + (v2 * x2 + v3 * x3)))
        ui = load(u, i)
        v0, v1 = settled(panels, row0 + i, u0, ui), settled(panels, row1 + i, u1, ui)
        v2, v3 = settled(panels, row2 + i, u2, ui), settled(panels, row3 + i, u3, ui)
        column = (v0 * x0 + v1 * x1) + (v2 * x2 + v3 * x3)
        store(s, i, totals(sum0, sum1, sum2, sum3) + column)
        row0 += 4 * (i + 4)


@inlined
def dot(a: Array, b: Array) -> Any:
    """Return `a·b` of two padded vectors."""
    left = right = fill(0.0)
    for k in range(0, a.shape[0], 8):
        left = left + load(a, k) * load(b, k)
        right = right + load(a, k + 4) * load(b, k + 4)
    return total(left + right)


@inlined
def weighted_square(x: Array, variances: Array) -> Any:
    """Return `Σ x_k² v_k` of two padded vectors."""
    left = right = fill(0.0)
    for k in range(0, x.shape[0], 8):
        left = left + load(x, k) * load(x, k) * load(variances, k)
        right = right + load(x, k + 4) * load(x, k + 4) * load(variances, k + 4)
    return total(left + right)


@inlined
def leaves_enough(chi: float, noise: float, alone: float) -> bool:
    """Whether a step with `γ/ω = noise` leaves enough of `χ = x·Σx`; `alone` is `Σ x_k²Σ_kk`."""
    return chi >= 0.0 and chi * noise >= LEAST_SHARE * (chi + noise) * alone


@kernel
def second_order(
    w: Array,
    n: int,
    gamma: float,
    panels: Array,
    diagonal: Array,
    u: Array,
    preferred: Array,
    p: Array,
    other: Array,
    o: Array,
    omega: Array,
    x: Array,
    s: Array,
    loss: Array,
    outcome: Array,
    variance: Array,
) -> float:
    """SOLAR-II, eqs. 8-9: `s = Σx`, `β = x·s + γ/ω`, `w ← w + (ℓ/β)s`, `Σ ← Σ - s sᵀ/β`.

    With `u = s/√β` the last is `Σ - u uᵀ`: `u_i·u_j` and `u_j·u_i` have the same bits. `diagonal`
    is the diagonal of Σ after the subtraction of `u uᵀ`, by the same operations.
    """
    largest = 0.0
    for t in range(p.shape[0]):
        margin, squared_norm = gap(w, n, preferred, p[t], other, o[t], x)
        largest = larger(largest, squared_norm)
        loss[t], outcome[t] = judge(margin, squared_norm)
        if outcome[t] != STEPPED:
            continue
        multiply(panels, u, x, s)
        chi, noise = dot(x, s), gamma / omega[t]
        variance[t] = chi
        if leaves_enough(chi, noise, weighted_square(x, diagonal)):
            alpha, shrink = fill(loss[t] / (chi + noise)), fill(1.0 / sqrt(chi + noise))
        else:
            loss[t], outcome[t] = 0.0, REFUSED
            alpha = shrink = fill(0.0)
        for k in range(0, w.shape[0], 4):
            taken = shrink * load(s, k)
            store(w, k, load(w, k) + alpha * load(s, k))
            store(u, k, taken)
            store(diagonal, k, load(diagonal, k) - taken * taken)
    return largest


@kernel
def settle(panels: Array, u: Array) -> None:
    """Subtract the pending `u uᵀ` from Σ, with the bits that `multiply` would give."""
    start = 0
    for i in range(u.shape[0]):
        length = i - i % 4 + 4
        for j in range(length):
            panels[start + j] -= u[i] * u[j]
        start += length
    for k in range(u.shape[0]):
        u[k] = 0.0


@kernel
def second_order_diagonal(
    w: Array,
    n: int,
    gamma: float,
    sigma: Array,
    preferred: Array,
    p: Array,
    other: Array,
    o: Array,
    omega: Array,
    x: Array,
    s: Array,
    loss: Array,
    outcome: Array,
    variance: Array,
) -> float:
    """SOLAR-II with a diagonal Σ, an approximation: `σ_k ← σ_k - (σ_k x_k)²/β`."""
    largest = 0.0
    for t in range(p.shape[0]):
        margin, squared_norm = gap(w, n, preferred, p[t], other, o[t], x)
        largest = larger(largest, squared_norm)
        loss[t], outcome[t] = judge(margin, squared_norm)
        if outcome[t] != STEPPED:
            continue
        for k in range(0, w.shape[0], 4):
            store(s, k, load(sigma, k) * load(x, k))
        chi, noise = dot(x, s), gamma / omega[t]
        variance[t] = chi
        if not leaves_enough(chi, noise, chi):
            loss[t], outcome[t] = 0.0, REFUSED
            continue
        alpha, shrink = fill(loss[t] / (chi + noise)), fill(1.0 / sqrt(chi + noise))
        for k in range(0, w.shape[0], 4):
            store(w, k, load(w, k) + alpha * load(s, k))
            taken = shrink * load(s, k)
            store(sigma, k, load(sigma, k) - taken * taken)
    return largest


@kernel
def tally(loss: Array, outcome: Array, variance: Array, squared: float, variances: float) -> Any:
    """Count passive, stepped and refused pairs; add losses² and variances to the sums, in order."""
    passive, stepped, refused = 0, 0, 0
    for t in range(loss.shape[0]):
        squared += loss[t] * loss[t]
        if outcome[t] == PASSIVE:
            passive += 1
        elif outcome[t] == STEPPED:
            stepped += 1
            variances += variance[t]
        else:
            refused += 1
    return passive, stepped, refused, squared, variances


@kernel
def inside(indices: Array, size: int) -> bool:
    """Whether every index is in `0 ... size - 1`."""
    for index in indices:  # noqa: SIM110  # numba compiles loops, not generators
        if not 0 <= index < size:
            return False
    return True


@kernel
def fitting(omega: Array, least: float, most: float) -> bool:
    """Whether every weight is in `least ... most` (and none is NaN)."""
    for weight in omega:  # noqa: SIM110
        if not least <= weight <= most:
            return False
    return True
