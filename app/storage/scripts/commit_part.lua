#!lua
-- Keep what a learner has learnt of the record after the committed state. The committed state stays.
-- KEYS: state fence
-- ARGV: epoch, fence, base seq, base chain, part
-- Returns 0 committed, 2 another base state, 3 another fencing token.
local now = redis.call('HMGET', KEYS[1], 'epoch', 'seq', 'chain')
if now[1] ~= ARGV[1] or now[2] ~= ARGV[3] or now[3] ~= ARGV[4] then return 2 end
if redis.call('GET', KEYS[2]) ~= ARGV[2] then return 3 end
redis.call('HSET', KEYS[1], 'part', ARGV[5])
return 0
