"""How large things may be, for all who have to know without having to compute."""

#: Hyper-parameters and weights of pairs lie between these, variances below the upper one, a model's
#: own weights within ±LARGEST_WEIGHT: so no step can overflow.
LEAST, MOST = 1e-12, 1e12
LARGEST_WEIGHT = 1e100

#: With so many features a full covariance takes 16 MB and a step 0.8 ms.
MOST_FEATURES_FULL = 2_000
MOST_FEATURES = 10_000_000
#: A served model, whose documents come as dense rows, has at most so many.
MOST_FEATURES_SERVED = 100_000

#: Labels are numbers from 0 to this.
LARGEST_LABEL = 30.0
#: Features are float32 at the edge: the largest.
LARGEST_VALUE = (2.0 - 2.0**-23) * 2.0**127
