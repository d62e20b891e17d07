#!lua flags=allow-oom
-- How a job goes on, from who trains; that also keeps the lease. With '1' it ends here.
-- A lease that has run out is taken anew, if nobody has begun to train the model since: a store that
-- was gone for a while ends no training.
-- KEYS: job:<id> training trained   ARGV: who trains, lease in ms, how long a job is kept in ms, '1' if it
--       ends, then fields and values
-- Returns 0, or 1 if another trains, or it was forgotten, or 2 if it is to be cancelled; then
-- nothing was written, unless it ends.
local trains, ends = redis.call('GET', KEYS[2]), ARGV[4] == '1'
if redis.call('HGET', KEYS[1], 'ended') == ARGV[1] then return ends and 0 or 1 end
if trains and trains ~= ARGV[1] then return 1 end
if redis.call('HGET', KEYS[1], 'trains') ~= ARGV[1] then return 1 end
if redis.call('GET', KEYS[3]) ~= ARGV[1] then return 1 end
if redis.call('HEXISTS', KEYS[1], 'cancel') == 1 and not ends then return 2 end
redis.call('HSET', KEYS[1], unpack(ARGV, 5))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[3], ARGV[3])
if ends then
  redis.call('HSET', KEYS[1], 'ended', ARGV[1])
  redis.call('DEL', KEYS[2])
else
  redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
end
return 0
