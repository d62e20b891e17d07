#!lua flags=allow-oom
-- Release the caller's lease.
-- KEYS: lease   ARGV: the caller's fence
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
