#!lua
-- Start a training job unless another one trains the model; safe to resend.
-- KEYS: state job:<id> training trained d:<event of the job's record>   ARGV: epoch, training process,
--       lease in ms, TTL of a job in ms, value of the dedupe key of a cancelled job, then the job's
--       fields and values
-- Returns 0, 1 if there is no such model, 2 if another job trains it.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 1 end
local trains = redis.call('GET', KEYS[3])
if trains and trains ~= ARGV[2] then return 2 end
redis.call('DEL', KEYS[2])
if redis.call('GET', KEYS[5]) == ARGV[5] then redis.call('DEL', KEYS[5]) end
redis.call('HSET', KEYS[2], 'epoch', ARGV[1], unpack(ARGV, 6))
redis.call('PEXPIRE', KEYS[2], ARGV[4])
redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[3])
redis.call('SET', KEYS[4], ARGV[2], 'PX', ARGV[4])
return 0
