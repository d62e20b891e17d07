#!lua flags=allow-oom
-- A learner is at work, for so long at least; those of whom nothing was heard for longer are not.
-- KEYS: learners   ARGV: its name, for how long in ms
-- Returns how many learners there are.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
return redis.call('ZCARD', KEYS[1])
