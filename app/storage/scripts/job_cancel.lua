#!lua flags=allow-oom
-- Ask the training process to stop; cancel a job without a training process at once.
-- KEYS: job:<id> training   ARGV: name of the running state, of the cancelled state
-- Returns 0, 1 if there is no such job, 2 if it has ended or is finishing.
local state = redis.call('HGET', KEYS[1], 'state')
if not state then return 1 end
if state ~= ARGV[1] then return state == ARGV[2] and 0 or 2 end
redis.call('HSET', KEYS[1], 'cancel', '1')
if redis.call('GET', KEYS[2]) ~= redis.call('HGET', KEYS[1], 'trains') then
  redis.call('HSET', KEYS[1], 'state', ARGV[2])
end
return 0
