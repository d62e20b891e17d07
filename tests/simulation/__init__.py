"""The real learner, posters and rankers against a server that is not: it fails by seed.

    clockwork.py   an event loop whose time is a number, and whose threads are none
    keyspace.py    what a Redis keeps, in plain Python; every write can be taken back
    scripts.py     the Lua scripts of `app/storage/scripts`, line by line
    server.py      a primary, its replica and its disk: what a restart, a power cut, a failover lose
    client.py      what the store takes for redis-py: delays, losses, re-sends, pauses
    checker.py     the invariants, after every step and in the end
    world.py       who lives there, and what happens to them, all from one seed
    mutants.py     bugs to be found

`Store` itself is the real one: the double stands where Redis and its client do. A seed is
replayed by its number: `make simulate SEED=1234`.
"""
