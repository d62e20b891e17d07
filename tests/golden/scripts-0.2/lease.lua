#!lua flags=allow-oom
-- Take a free lease with a new fencing token, or renew the caller's lease.
-- KEYS: state fence lease   ARGV: the caller's fence ('' for none), TTL in ms
-- Returns the fence, 0 if another learner holds the lease, -1 if there is no such model.
if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end
local holder = redis.call('GET', KEYS[3])
if holder and holder ~= ARGV[1] then return 0 end
if holder then
  redis.call('PEXPIRE', KEYS[3], ARGV[2])
  return tonumber(holder)
end
if ARGV[1] ~= '' then return 0 end  -- expired: a new term starts from the committed state
local fence = redis.call('INCR', KEYS[2])
redis.call('SET', KEYS[3], fence, 'PX', ARGV[2])
return fence
