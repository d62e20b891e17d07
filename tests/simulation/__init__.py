"""Deterministic simulation: real learners, clients and replicas on a simulated server.

    clockwork.py   an event loop with simulated time and without threads
    keyspace.py    the data of a Redis in plain Python; writes can be lost
    scripts.py     the Lua scripts of `app/storage/scripts` in Python
    server.py      a primary, its replica and its disk: restarts, power cuts, failovers
    client.py      a double of redis-py: delays, losses, resends, pauses
    checker.py     the invariants, after every step and at the end; follower_checks.py and
                   duel_checks.py have those of followers and duels, expected.py what must be
    world.py       processes, clients and faults, all from one seed
    duel_operator.py  followers created and deleted; duels, tournaments and promotions
    mutants.py     planted bugs; duel_mutants.py has those of followers and duels

`Store` is the real one; the double replaces Redis and its client. To replay a seed, run
`make simulate SEED=1234`.
"""
