"""All state in Redis, behind one interface: `store.Store`.

A Lua script with all keys declared makes each change of more than one key. Every write is
deduplicated or compare-and-set, because a client resends after a lost connection.
"""
