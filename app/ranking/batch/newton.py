"""Trust-region Newton with conjugate gradients (TRON; Lee & Lin 2014, section 4.1).

The solver does not depend on ranking. An objective gives points; a point gives its value, its
gradient and products with its Hessian, which must be positive definite. It may give the diagonal of
its Hessian, too, as a preconditioner.

scipy's solvers lack this stopping rule and cancellation. CPU time in ms on MQ2008 (fold 1), with
the default tolerance and with one a thousand times smaller, against the best of scipy's trust-ncg,
trust-krylov and Newton-CG:

    C        newton.py     best of scipy
    10⁻⁴     4.8, 9.9      7.6, 11
    10⁻²     9.4, 23       16, 36     (scipy's end closer to the minimum: 10⁻⁵ instead of 8·10⁻⁵)
    1        21, 59        18, 71     (newton.py ends closer: 8·10⁻⁵ instead of 3·10⁻⁴)

Two rules are those of LIBLINEAR (Hsia, Zhu & Lin 2017; Hsia, Chiang & Lin 2018). A good step that
ends on the boundary of the trust region grows it fourfold; without this rule a sample of MSLR at
C = 1 takes 2.6 times the evaluations. The trust region is a ball in the preconditioned variables. A
preconditioner makes dense data slower (MQ2008 and MSLR: 1.1 to 2.0 times) and sparse data faster
(`python -m benchmarks newton sparse`).
"""

from dataclasses import dataclass
from math import inf, isfinite, sqrt
from typing import NamedTuple, Protocol

import numpy as np

from app.ranking.arrays import Floats
from app.ranking.batch import Progress, silent

#: Stop once the gradient's norm is this share of the norm at w = 0 (eq. 38).
GRADIENT_TOLERANCE = 1e-3
#: A step is accepted if it gives at least ETA_0 of the predicted decrease; the trust region shrinks
#: below ETA_1 of it and grows above ETA_2 (eqs. 36-37).
ETA_0, ETA_1, ETA_2 = 1e-4, 0.25, 0.75
SIGMA_1, SIGMA_2, SIGMA_3 = 0.25, 0.5, 4.0
#: A decrease below this share of the value may be a rounding error.
NOISE = 1e-13
#: Conjugate gradients stop once the residual is this share of the gradient.
FORCING = 0.1


class QuadraticModel(Protocol):
    """The part of a point that a Newton step needs."""

    @property
    def gradient(self) -> Floats:
        """∇f(w)."""

    def hessian_product(self, v: Floats) -> Floats:
        """∇²f(w) v."""


class NewtonPoint(QuadraticModel, Protocol):
    """An objective at one w."""

    w: Floats
    value: float

    @property
    def diagonal(self) -> Floats | None:
        """The diagonal of ∇²f(w), or a positive approximation, to precondition; None: do not."""


class Objective(Protocol):
    """A smooth and strictly convex function."""

    @property
    def n(self) -> int:
        """The number of weights."""

    def at(self, w: Floats) -> NewtonPoint:
        """The objective around w."""


@dataclass(frozen=True, slots=True)
class Minimum:
    """The result of a solver; `distance` is the norm of the gradient, or the gap to the bound."""

    w: Floats
    value: float
    distance: float
    iterations: int
    products: int
    converged: bool


def minimise(
    objective: Objective,
    start: Floats | None = None,
    *,
    tolerance: float = GRADIENT_TOLERANCE,
    scale: float | None = None,
    most: int = 1000,
    progress: Progress = silent,
) -> Minimum:
    """Minimise from `start` (or 0) until `‖∇f‖ ≤ tolerance · scale`; scale defaults to ‖∇f(0)‖.

    >>> class Parabola:
    ...     n, diagonal = 2, None
    ...     def at(self, w):
    ...         self.w, self.value, self.gradient = w, w @ w / 2 - w[0], w - [1, 0]
    ...         return self
    ...     def hessian_product(self, v):
    ...         return v
    >>> minimise(Parabola()).w
    array([1., 0.])
    """
    origin = np.zeros(objective.n)
    point = objective.at(origin if start is None else start)
    if scale is None:
        scale = norm((point if start is None else objective.at(origin)).gradient)
    distance = norm(point.gradient)
    radius, products, iteration = inf, 0, 0
    progress(0, point.value, distance, point.w)
    while distance > tolerance * scale and iteration < most:
        iteration += 1
        model = Preconditioned.of(point)
        if iteration == 1:
            radius = norm(model.gradient)
        step = truncated_step(model, radius)
        products += step.products
        trial = objective.at(point.w + model.unscaled(step.s))
        actual = trial.value - point.value
        if iteration == 1:
            radius = min(radius, step.length)
        radius = resized(radius, step, actual)
        if -step.predicted <= NOISE * abs(point.value):  # compare gradients: values are too close
            if norm(trial.gradient) >= distance:
                break
            point = trial
        elif actual <= ETA_0 * step.predicted:
            point = trial
        distance = norm(point.gradient)
        progress(iteration, point.value, distance, point.w)
    converged = distance <= tolerance * scale
    return Minimum(point.w, point.value, distance, iteration, products, converged)


class Preconditioned:
    """A point in the variables `M^½ w`, with M = diag(diagonal): its Hessian is `M^-½ ∇²f M^-½`.

    The trust region is a ball in these variables. M = I without a diagonal.
    """

    def __init__(self, point: NewtonPoint, scale: Floats | float) -> None:
        self._point, self._scale = point, scale
        self.gradient: Floats = scale * point.gradient

    @classmethod
    def of(cls, point: NewtonPoint) -> "Preconditioned":
        """Precondition a point by its diagonal, if it has one."""
        return cls(point, 1.0 if point.diagonal is None else 1.0 / np.sqrt(point.diagonal))

    def hessian_product(self, v: Floats) -> Floats:
        """`M^-½ ∇²f(w) M^-½ v`."""
        return self._scale * self._point.hessian_product(self._scale * v)

    def unscaled(self, s: Floats) -> Floats:
        """Return a step in the variables w."""
        return self._scale * s


class Step(NamedTuple):
    """A step s, ‖s‖, g·s, the predicted decrease `g·s + ½ s·Hs`, and the Hessian products it took.

    A step `on_boundary` of the trust region was cut short there.
    """

    s: Floats
    length: float
    slope: float
    predicted: float
    products: int
    on_boundary: bool


def truncated_step(model: QuadraticModel, radius: float) -> Step:
    """Solve `min g·s + ½ s·Hs, ‖s‖ ≤ radius` (eq. 35) roughly: Steihaug's conjugate gradients."""
    s, residual = np.zeros_like(model.gradient), -model.gradient
    direction, squared = residual.copy(), float(residual @ residual)
    enough, products, reached = FORCING * sqrt(squared), 0, False
    while not reached and sqrt(squared) > enough and products < 10 * len(s) + 10:
        products += 1
        curved = model.hessian_product(direction)
        alpha = squared / float(direction @ curved)
        reached = norm(s + alpha * direction) > radius
        if reached:
            alpha = to_boundary(s, direction, radius)
        s += alpha * direction
        residual -= alpha * curved
        before, squared = squared, float(residual @ residual)
        direction *= squared / before
        direction += residual
    slope = float(model.gradient @ s)
    predicted = 0.5 * (slope - float(s @ residual))  # Hs = -g - residual
    return Step(s, norm(s), slope, predicted, products, reached)


def to_boundary(step: Floats, direction: Floats, radius: float) -> float:
    """Return the `τ ≥ 0` with `‖step + τ direction‖ = radius`."""
    sd, dd = float(step @ direction), float(direction @ direction)
    room = radius * radius - float(step @ step)
    root = sqrt(max(0.0, sd * sd + dd * room))
    return room / (sd + root) if sd >= 0.0 else (root - sd) / dd


def norm(v: Floats) -> float:
    """Return `‖v‖`."""
    return sqrt(float(v @ v))


def resized(radius: float, step: Step, actual: float) -> float:
    """Eq. 37; a parabola through the trial point chooses the value in the interval.

    A good step that the boundary cut short would go on: its radius grows by the whole factor.
    """
    length, predicted = step.length, step.predicted
    bend = actual - step.slope
    best = inf if bend <= 0.0 else -0.5 * step.slope / bend
    ideal = max(SIGMA_1, best) * length if isfinite(actual) else SIGMA_1 * length
    if actual > ETA_1 * predicted:
        return min(max(ideal, SIGMA_1 * min(length, radius)), SIGMA_2 * radius)
    if actual > ETA_2 * predicted:
        return max(SIGMA_1 * radius, min(ideal, SIGMA_3 * radius))
    if step.on_boundary:
        return SIGMA_3 * radius
    return max(radius, min(ideal, SIGMA_3 * radius))
