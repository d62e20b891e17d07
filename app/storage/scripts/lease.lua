#!lua flags=allow-oom
-- Take a free lease with a new fencing token, or renew the caller's lease.
-- KEYS: state fence lease   ARGV: the caller's fence ('' for none), TTL in ms
-- The lease is the fencing token and ten digits of its length in ms.
-- Returns the fence, 0 if another learner holds the lease, -1 if there is no such model.

-- A lease is void if it expires later than its length and 1 s allow: the server's clock went back.
-- Version 0.2 wrote no length: 60 s. Without the right to PTTL every lease counts.
local function valid(key)
  local lease, left = redis.call('GET', key), redis.pcall('PTTL', key)
  if not lease or type(left) ~= 'number' then return lease end
  local length = string.match(lease, ':(%d+)$')
    or string.match(lease, '^%d+(%d%d%d%d%d%d%d%d%d%d)$') or 60000
  return left >= 0 and left <= length + 1000 and lease
end

if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end
local fence, held = ARGV[1], redis.call('GET', KEYS[3]) or ''
if fence == '' then
  if valid(KEYS[3]) then return 0 end
  fence = redis.call('INCR', KEYS[2])
elseif (string.match(held, '^(%d+)%d%d%d%d%d%d%d%d%d%d$') or held) ~= fence then
  return 0  -- expired: a new term starts from the committed state
end
redis.call('SET', KEYS[3], fence .. string.format('%010d', ARGV[2]), 'PX', ARGV[2])
return tonumber(fence)
