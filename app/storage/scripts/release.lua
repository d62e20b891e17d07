#!lua flags=allow-oom
-- Release the caller's lease.
-- KEYS: lease   ARGV: the caller's fence
local held = redis.call('GET', KEYS[1]) or ''
local fence = string.match(held, '^(%d+)%d%d%d%d%d%d%d%d%d%d$') or held  -- version 0.2: no length
if fence == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
