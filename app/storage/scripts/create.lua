#!lua
-- Create a model at seq 0 in a new epoch.
-- Returns the epoch, 0 if the model exists, -1 if a deleted model of this name left followers.
-- Versions that an older release left behind when it deleted a model of this name go.
-- KEYS: epoch state seq snaps snap:0 followers keeps keep:…   ARGV: chain w spread sums meta
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
if redis.call('EXISTS', KEYS[6]) == 1 then return -1 end
for i = 7, #KEYS do redis.call('DEL', KEYS[i]) end
local epoch = redis.call('INCR', KEYS[1])
for _, key in ipairs({KEYS[2], KEYS[5]}) do
  redis.call('HSET', key, 'epoch', epoch, 'seq', 0, 'fence', 0, 'chain', ARGV[1], 'w', ARGV[2],
    'spread', ARGV[3], 'sums', ARGV[4], 'meta', ARGV[5])
end
local clock = redis.call('TIME')
redis.call('HSET', KEYS[5], 'reason', 'created', 'time', clock[1] .. '000')
redis.call('HSET', KEYS[2], 'slices', '0 0:3:' .. clock[1] .. '000', 'sliced', '0:0')
redis.call('SET', KEYS[3], 0)
redis.call('ZADD', KEYS[4], 0, 0)
redis.call('PUBLISH', 'solar:changed', string.match(KEYS[2], '{(.*)}'))
return epoch
