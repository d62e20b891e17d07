"""A bank of six followers over HTTP: from one request to the best one in place."""

import pytest

from tests.api.duels import (
    STILL,
    call,
    documents,
    ids,
    promoted,
    rank,
    serve_users,
    teach,
    until_learnt,
)
from tests.api.services import serving
from tests.servers import until

#: Six values of gamma; with all but the first one a follower keeps the submitted order.
GAMMA = [1.0, 1e8, 1e9, 1e10, 1e11, 5e11]
#: Requests until the test gives up.
MOST_REQUESTS = 4_000


@pytest.mark.slow
def test_the_best_of_a_bank_of_six_wins_its_duel_and_is_put_in_place() -> None:
    with serving() as running, running.client() as http:
        call(http, "PUT", "/models/shop", 201, STILL)
        made = call(http, "POST", "/models/shop/followers", 201, {"grid": {"gamma": GAMMA}})
        names = [one["name"] for one in made["followers"]]
        assert len(names) == len(set(names)) == 6
        assert sorted(one["gamma"] for one in made["followers"]) == GAMMA
        seq = teach(http, "shop")
        learnt = {name: until_learnt(http, name, seq) for name in names}
        assert {one["feedback"] for one in learnt.values()} == {60}
        listed = call(http, "GET", "/models/shop/followers", 200)["followers"]
        assert [(one["name"], one["may_duel"]) for one in listed] == [
            (name, True) for name in names
        ]
        body = {"challenger": "followers", "max_lists": 6 * 500, "share": 0.5}
        begun = call(http, "PUT", "/models/shop/duel", 201, body)
        assert begun["tournament"]["followers"] == names
        assert abs(begun["alpha"] - 0.05 / 21) < 1e-12
        for first in range(0, MOST_REQUESTS, 50):
            serve_users(http, "shop", range(first, first + 50))
            duel = call(http, "GET", "/models/shop/duel", 200)
            if duel["tournament"]["step"] or duel["verdict"] != "undecided":
                break
        until(lambda: call(http, "GET", "/models/shop/duel", 200)["tournament"]["step"] == 1)
        tournament = call(http, "GET", "/models/shop/duel", 200)["tournament"]
        best = tournament["ahead"]
        assert learnt[best]["gamma"] == 1.0
        assert [(one["challenger"], one["verdict"]) for one in tournament["table"]] == [
            (best, "challenger"), (names[1], "undecided"),
        ]  # fmt: skip
        seq = promoted(http, "shop", force=True)["seq"]
        until(lambda: call(http, "GET", "/models/shop", 200)["version"] >= seq)
        assert call(http, "GET", "/models/shop", 200)["gamma"] == 1.0
        top = [ids(rank(http, "shop", seed, explore=False, min_seq=seq))[0] for seed in range(20)]
        assert top == [
            max(documents(seed), key=lambda one: one["features"][0])["id"] for seed in range(20)
        ]
