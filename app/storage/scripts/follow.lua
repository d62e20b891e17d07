#!lua
-- Create followers of a model, all or none. The log must be whole from the start of each.
-- KEYS: leader's state, leader's snaps, followers, then for each: epoch state snaps snap:<start>
-- ARGV: epoch of the leader, then for each: name, start, chain, w, spread, sums, meta
-- Returns the epoch of each; or one number: 0 a follower of such a name exists, -1 no such leader,
-- -2 the log is not whole from a start, or has other records before it.
local EACH_KEYS, EACH = 4, 7
local leader = redis.call('HMGET', KEYS[1], 'epoch', 'seq', 'chain')
if leader[1] ~= ARGV[1] then return {-1} end
local oldest = tonumber(redis.call('ZRANGE', KEYS[2], 0, 0)[1] or leader[2])
local count, epochs = (#ARGV - 1) / EACH, {}
for i = 1, count do
  local at = 1 + EACH * (i - 1)
  local start, chain = tonumber(ARGV[at + 2]), ARGV[at + 3]
  if redis.call('HEXISTS', KEYS[3], ARGV[at + 1]) == 1 then return {0} end
  if start < oldest or start > tonumber(leader[2]) then return {-2} end
  if start == tonumber(leader[2]) and chain ~= leader[3] then return {-2} end
end
local time = redis.call('TIME')[1] .. '000'
local tag = string.match(KEYS[1], '{(.*)}')
for i = 1, count do
  local at, first = 1 + EACH * (i - 1), 3 + EACH_KEYS * (i - 1)
  local name, start, state, snap = ARGV[at + 1], ARGV[at + 2], KEYS[first + 2], KEYS[first + 4]
  epochs[i] = redis.call('INCR', KEYS[first + 1])
  for _, key in ipairs({state, snap}) do
    redis.call('HSET', key, 'epoch', epochs[i], 'seq', start, 'fence', 0, 'chain', ARGV[at + 3],
      'w', ARGV[at + 4], 'spread', ARGV[at + 5], 'sums', ARGV[at + 6], 'meta', ARGV[at + 7])
  end
  redis.call('HSET', snap, 'reason', 'created', 'time', time)
  redis.call('ZADD', KEYS[first + 3], start, start)
  redis.call('HSET', KEYS[3], name, '')
  redis.call('PUBLISH', 'solar:changed', tag .. '/' .. name)
  redis.call('PUBLISH', 'solar:appended', tag .. '/' .. name)
end
return epochs
