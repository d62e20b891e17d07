#!lua flags=allow-oom
-- Store the progress of a job and renew its lease; '1' ends the job.
-- An expired lease is renewed unless another job has started: an outage of the store ends no job.
-- KEYS: job:<id> training trained   ARGV: training process, lease in ms, TTL of a job in ms, '1' if
--       it ends, then fields and values
-- Returns 0, 1 if another job trains or this one has expired, 2 if it is to be cancelled. Codes 1
-- and 2 write nothing.

-- A lease is void if it expires later than its length and 1 s allow: the server's clock went back.
-- Version 0.2 wrote no length: 60 s. Without the right to PTTL every lease counts.
local function valid(key)
  local lease, left = redis.call('GET', key), redis.pcall('PTTL', key)
  if not lease or type(left) ~= 'number' then return lease end
  local length = string.match(lease, ':(%d+)$')
    or string.match(lease, '^%d+(%d%d%d%d%d%d%d%d%d%d)$') or 60000
  return left >= 0 and left <= length + 1000 and lease
end

local trains, ends = valid(KEYS[2]), ARGV[4] == '1'
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
