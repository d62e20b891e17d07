#!lua
-- Start a training job unless another one trains the model; safe to resend.
-- KEYS: state job:<id> training trained d:<event of the job's record>, the same of version 0.2
-- ARGV: epoch, training process, lease in ms, TTL of a job in ms, value of the dedupe key of a
--       cancelled job, then the job's fields and values
-- Returns 0, 1 if there is no such model, 2 if another job trains it.

-- A lease is void if it expires later than its length and 1 s allow: the server's clock went back.
-- Version 0.2 wrote no length: 60 s. Without the right to PTTL every lease counts.
local function valid(key)
  local lease, left = redis.call('GET', key), redis.pcall('PTTL', key)
  if not lease or type(left) ~= 'number' then return lease end
  local length = string.match(lease, ':(%d+)$')
    or string.match(lease, '^%d+(%d%d%d%d%d%d%d%d%d%d)$') or 60000
  return left >= 0 and left <= length + 1000 and lease
end

if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 1 end
local trains = valid(KEYS[3])
if trains and trains ~= ARGV[2] then return 2 end
redis.call('DEL', KEYS[2])
for i = 5, 6 do
  if redis.call('GET', KEYS[i]) == ARGV[5] then redis.call('DEL', KEYS[i]) end
end
redis.call('HSET', KEYS[2], 'epoch', ARGV[1], unpack(ARGV, 6))
redis.call('PEXPIRE', KEYS[2], ARGV[4])
redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[3])
redis.call('SET', KEYS[4], ARGV[2], 'PX', ARGV[4])
return 0
