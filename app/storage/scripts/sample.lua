#!lua
-- Add samples of learnt records for those who watch the model. Each has the id <fence>-<seq>, so a resent
-- call, and a late one of an earlier learner, adds nothing.
-- KEYS: state samples   ARGV: epoch, fencing token, most samples, TTL in ms, then seq, sample
--       and tenant of each record
-- Returns 1, or 0 if the model is another one.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
for i = 5, #ARGV, 3 do
  redis.pcall('XADD', KEYS[2], 'MAXLEN', ARGV[3], ARGV[2] .. '-' .. ARGV[i], 's', ARGV[i + 1], 't', ARGV[i + 2])
end
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return 1
