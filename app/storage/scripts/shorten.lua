#!lua flags=allow-oom
-- Let a follower drop its versions before a seq, so that the log before it can be trimmed. One whose
-- newest version is before the seq is stalled: it keeps its versions, and the log no longer waits.
-- Nothing changes if the leader has another state than the one that the seq belongs to: the command
-- was sent again after a failover.
-- KEYS: followers snaps, the leader's state, then versions before the seq: snap:<old> …
-- ARGV: name, seq ('': stalled whatever its versions are); with a seq: epoch, seq and chain of the
--       leader's state
-- Returns 1 the follower is stalled, 0 otherwise.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
local newest = tonumber(redis.call('ZRANGE', KEYS[2], -1, -1)[1] or '')
local seq = tonumber(ARGV[2])
local leader = redis.call('HMGET', KEYS[3], 'epoch', 'seq', 'chain')
if seq and (leader[1] ~= ARGV[3] or leader[2] ~= ARGV[4] or leader[3] ~= ARGV[5]) then return 0 end
if not seq or not newest or newest < seq then
  redis.call('HSET', KEYS[1], ARGV[1], 'stalled')
  redis.call('PUBLISH', 'solar:changed', string.match(KEYS[1], '{(.*)}') .. '/' .. ARGV[1])
  return 1
end
for i = 4, #KEYS do
  redis.call('DEL', KEYS[i])
  redis.call('ZREM', KEYS[2], string.match(KEYS[i], ':([^:]+)$'))
end
return 0
