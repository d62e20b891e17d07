#!lua flags=allow-oom
-- Register a running learner with the models that it leads; remove expired ones, and void ones: those that expire later than
-- their length and 1 s allow, because the server's clock went back.
-- KEYS: learners, solar:{solar:learners}:<its name>
-- ARGV: its name, which ends with ':' and its length in ms (version 0.2 wrote none: 60 s), TTL in ms,
--       its models
-- Returns the number of learners.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[2])
local all = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for i = 1, #all, 2 do
  local length = string.match(all[i], ':(%d+)$') or 60000
  if all[i + 1] - now > length + 1000 then redis.call('ZREM', KEYS[1], all[i]) end
end
return redis.call('ZCARD', KEYS[1])
