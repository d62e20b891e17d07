#!lua flags=allow-oom
-- Ask the training process to stop; cancel a job without a training process at once. The dedupe key
-- of the job's record then has seq 0, so that no append of it succeeds later.
-- KEYS: job:<id> training d:<event of the job's record>   ARGV: name of the running state, of the
--       cancelled state, TTL of a job in ms, value of the dedupe key of a cancelled job
-- Returns 0, 1 if there is no such job, 2 if it has ended or its record is in the log.
local state = redis.call('HGET', KEYS[1], 'state')
if not state then return 1 end
if state ~= ARGV[1] then return state == ARGV[2] and 0 or 2 end
local record = redis.call('GET', KEYS[3])
if record and record ~= ARGV[4] then return 2 end
redis.call('SET', KEYS[3], ARGV[4], 'PX', ARGV[3])
redis.call('HSET', KEYS[1], 'cancel', '1')
if redis.call('GET', KEYS[2]) ~= redis.call('HGET', KEYS[1], 'trains') then
  redis.call('HSET', KEYS[1], 'state', ARGV[2])
end
return 0
