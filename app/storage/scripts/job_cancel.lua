#!lua flags=allow-oom
-- Ask the training process to stop; cancel a job without a training process at once. The dedupe key
-- of the job's record then has seq 0, so that no append of it succeeds later. Version 0.2 used another
-- key, which may also belong to feedback: its value then ends with a digest.
-- KEYS: job:<id> training d:<event of the job's record>, the same of version 0.2
-- ARGV: name of the running state, of the cancelled state, TTL of a job in ms, value of the dedupe
--       key of a cancelled job
-- Returns 0, 1 if there is no such job, 2 if it has ended or its record is in the log.

-- A lease is void if it expires later than its length and 1 s allow: the server's clock went back.
-- Version 0.2 wrote no length: 60 s. Without the right to PTTL every lease counts.
local function valid(key)
  local lease, left = redis.call('GET', key), redis.pcall('PTTL', key)
  if not lease or type(left) ~= 'number' then return lease end
  local length = string.match(lease, ':(%d+)$')
    or string.match(lease, '^%d+(%d%d%d%d%d%d%d%d%d%d)$') or 60000
  return left >= 0 and left <= length + 1000 and lease
end

local state = redis.call('HGET', KEYS[1], 'state')
if not state then return 1 end
if state ~= ARGV[1] then return state == ARGV[2] and 0 or 2 end
local record, old = redis.call('GET', KEYS[3]), redis.call('GET', KEYS[4]) or ARGV[4]
if record and record ~= ARGV[4] then return 2 end
if old ~= ARGV[4] and string.match(old, '^%d+:$') then return 2 end
redis.call('SET', KEYS[3], ARGV[4], 'PX', ARGV[3])
if old == ARGV[4] then redis.call('SET', KEYS[4], ARGV[4], 'PX', ARGV[3]) end
redis.call('HSET', KEYS[1], 'cancel', '1')
if valid(KEYS[2]) ~= redis.call('HGET', KEYS[1], 'trains') then
  redis.call('HSET', KEYS[1], 'state', ARGV[2])
end
return 0
