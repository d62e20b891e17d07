"""All state lives in Redis, behind one interface: `store.Store`.

Everything that changes more than one key does so in a Lua script with all keys declared; every
write is deduplicated or compare-and-set, because a client sends again after a lost connection.
"""
