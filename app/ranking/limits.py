"""Limits of parameters, features and labels, in a module without numerical imports."""

#: Bounds of hyper-parameters and pair weights; MOST also bounds variances, and ±LARGEST_WEIGHT
#: bounds model weights. Within these limits no step overflows.
LEAST, MOST = 1e-12, 1e12
LARGEST_WEIGHT = 1e100
#: The weight of a debiased pair whose two orders are equally likely, and the same for models from
#: before there was `exploration`.
KAPPA, FORMER_KAPPA = 1.0, 10.0
#: Default bound of `ω‖x‖²` of a pair, for each feature of a new model. Debiased clicks have weights
#: up to 2, so pairs of features from 0 to 1 stay below half of it; the other half is for
#: standardised features. Fair pairs have the weight 100: no pair of MQ2008 reached 80, some reached
#: 60.
BOUND_PER_FEATURE, FAIR_BOUND_PER_FEATURE = 4.0, 80.0
#: Bounds of the weight of a triplet for a model with a bound of its pairs.
LEAST_TRIPLET, MOST_TRIPLET = 1e-3, 20.0

#: At this limit a full covariance takes 16 MB and a step 0.8 ms.
MOST_FEATURES_FULL = 2_000
MOST_FEATURES = 10_000_000
#: The limit of a served model, whose documents are dense rows.
MOST_FEATURES_SERVED = 100_000

#: Labels are numbers from 0 to this.
LARGEST_LABEL = 30.0
#: Gains of clicks are numbers from 0 to this.
LARGEST_GAIN = 10.0
#: The largest float32; features enter the package as float32.
LARGEST_VALUE = (2.0 - 2.0**-23) * 2.0**127
