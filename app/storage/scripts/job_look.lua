#!lua flags=no-writes
-- Read a job and the training process of its model atomically.
-- KEYS: job:<id> training
-- Returns the job's fields and values in turn, and the training process.

-- A lease is void if it expires later than its length and 1 s allow: the server's clock went back.
-- Version 0.2 wrote no length: 60 s. Without the right to PTTL every lease counts.
local function valid(key)
  local lease, left = redis.call('GET', key), redis.pcall('PTTL', key)
  if not lease or type(left) ~= 'number' then return lease end
  local length = string.match(lease, ':(%d+)$')
    or string.match(lease, '^%d+(%d%d%d%d%d%d%d%d%d%d)$') or 60000
  return left >= 0 and left <= length + 1000 and lease
end

return {redis.call('HGETALL', KEYS[1]), valid(KEYS[2])}
