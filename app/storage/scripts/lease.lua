#!lua flags=allow-oom
-- Take the lease if it is free (a new fence), or keep it if it is ours.
-- KEYS: state fence lease   ARGV: our fence ('' for none), TTL in ms
-- Returns the fence, or 0 if another holds the lease, or -1 if there is no such model.
if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end
local holder = redis.call('GET', KEYS[3])
if holder and holder ~= ARGV[1] then return 0 end
if holder then
  redis.call('PEXPIRE', KEYS[3], ARGV[2])
  return tonumber(holder)
end
if ARGV[1] ~= '' then return 0 end  -- ours has ended: a new term begins with the committed state
local fence = redis.call('INCR', KEYS[2])
redis.call('SET', KEYS[3], fence, 'PX', ARGV[2])
return fence
