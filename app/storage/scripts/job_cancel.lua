#!lua flags=allow-oom
-- Ask whoever trains to stop; a job that nobody trains any more is cancelled at once, and who comes
-- back to it is told so.
-- KEYS: job:<id> training   ARGV: state of a job that trains, of one that is cancelled
-- Returns 0, or 1 if there is no such job, or 2 if it has ended, or is past stopping.
local state = redis.call('HGET', KEYS[1], 'state')
if not state then return 1 end
if state ~= ARGV[1] then return state == ARGV[2] and 0 or 2 end
redis.call('HSET', KEYS[1], 'cancel', '1')
if redis.call('GET', KEYS[2]) ~= redis.call('HGET', KEYS[1], 'trains') then
  redis.call('HSET', KEYS[1], 'state', ARGV[2])
end
return 0
