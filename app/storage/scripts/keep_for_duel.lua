#!lua
-- Keep a copy of a version while it is in a duel. A copy that is there gets a new time, which
-- drop.lua compares.
-- KEYS: state keeps, the version, keep:<epoch>-duel-<seq>   ARGV: epoch
-- Returns 1 kept, 0 there is no such version, -1 no such model.
local names = {'epoch', 'fence', 'seq', 'chain', 'w', 'spread', 'sums', 'meta'}
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return -1 end
local clock = redis.call('TIME')
local time = string.format('%s%03d', clock[1], math.floor(clock[2] / 1000))
if redis.call('EXISTS', KEYS[4]) == 1 then
  redis.call('HSET', KEYS[4], 'time', time)
  return 1
end
local version = redis.call('HMGET', KEYS[3], unpack(names))
if not version[3] then return 0 end
for i, name in ipairs(names) do
  if version[i] then redis.call('HSET', KEYS[4], name, version[i]) end
end
redis.call('HSET', KEYS[4], 'reason', 'duel', 'time', time)
redis.call('ZADD', KEYS[2], version[3], string.match(KEYS[4], ':([^:]+)$'))
return 1
