#!lua flags=allow-oom
-- Give the lease back, if it is ours.
-- KEYS: lease   ARGV: our fence
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
