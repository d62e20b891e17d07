#!lua
-- Admit a model to those that have a history, or renew its entry. An entry lasts as long as the
-- history after the last renewal: a day, and the 15 minutes within which an entry is renewed. One
-- from a clock that went back is removed, too.
-- KEYS: histories   ARGV: model, the number of models that may have a history
-- Returns 1 admitted, 0 there are as many already.
local LASTS = 87300000
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - LASTS)
redis.call('ZREMRANGEBYSCORE', KEYS[1], now + 60000, '+inf')
local new = redis.call('ZADD', KEYS[1], 'NX', now, ARGV[1]) == 1
if new and redis.call('ZCARD', KEYS[1]) > tonumber(ARGV[2]) then
  redis.call('ZREM', KEYS[1], ARGV[1])
  return 0
end
redis.call('ZADD', KEYS[1], now, ARGV[1])
return 1
