"""Keys that belong to nothing are found."""

from tests.soak.keyspace import Registered, strangers

KNOWN = Registered(
    {"shop", "shop/shop-b"},
    {
        ("shop", "snap"): {"0", "10"},
        ("shop", "keep"): {"1-name-a"},
        ("shop/shop-b", "snap"): {"10"},
    },
)
HEALTHY = {
    "solar:models": -0.001,
    "solar:{solar:models}:followers": -0.001,
    "solar:{shop}:state": -0.001,
    "solar:{shop}:log": -0.001,
    "solar:{shop}:snap:10": -0.001,
    "solar:{shop}:keep:1-name-a": -0.001,
    "solar:{shop}:f:shop-b:state": -0.001,
    "solar:{shop}:f:shop-b:snap:10": -0.001,
    "solar:{shop}:imp:1:r1": 1700.0,
    "solar:{gone}:imp:1:r1": 21_000.0,
    "solar:{gone}:e:1:7:0": 5000.0,
    "solar:{gone}:job:7": 6 * 86_400.0,
    "solar:{gone}:epoch": -0.001,
    "solar:{shop}:f:gone:fence": -0.001,
}


def test_keys_of_models_and_keys_that_expire_are_no_problem() -> None:
    assert list(strangers(HEALTHY, KNOWN)) == []


def test_keys_that_a_deleted_model_left_are_found() -> None:
    left = {
        "solar:{gone}:log": -0.001,
        "solar:{shop}:f:gone:state": -0.001,
        "solar:{shop}:snap:5": -0.001,
        "solar:{shop}:keep:0-hour-5": -0.001,
        "solar:{shop}:imp:1:r2": -0.001,
        "solar:{gone}:imp:1:r3": 90_000.0,
        "elsewhere": -0.001,
    }
    found = list(strangers(HEALTHY | left, KNOWN))
    assert [one.rpartition(": ")[0] for one in found] == list(left)
