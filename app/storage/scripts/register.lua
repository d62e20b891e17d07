#!lua
-- Register names, all or none: a name is that of a model or of a follower, never of both.
-- KEYS: solar:models solar:{solar:models}:followers   ARGV: leader ('': the names are models), names
-- Returns the names that are taken otherwise: nothing was registered then.
local leader, taken = ARGV[1], {}
for i = 2, #ARGV do
  local follows = redis.call('HGET', KEYS[2], ARGV[i])
  local other = leader == '' and follows
  if leader ~= '' then
    other = (follows and follows ~= leader) or redis.call('SISMEMBER', KEYS[1], ARGV[i]) == 1
  end
  if other then taken[#taken + 1] = ARGV[i] end
end
if #taken > 0 then return taken end
for i = 2, #ARGV do
  if leader == '' then
    redis.call('SADD', KEYS[1], ARGV[i])
  else
    redis.call('HSET', KEYS[2], ARGV[i], leader)
  end
end
return taken
