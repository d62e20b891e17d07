#!lua flags=allow-oom
-- Let a follower drop its versions before a seq, so that the log before it can be trimmed. One whose
-- newest version is before the seq is stalled: it keeps its versions, and the log no longer waits.
-- KEYS: followers snaps, then versions before the seq: snap:<old> …   ARGV: name, seq ('': stalled
--       whatever its versions are)
-- Returns 1 the follower is stalled, 0 otherwise.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
local newest = tonumber(redis.call('ZRANGE', KEYS[2], -1, -1)[1] or '')
local seq = tonumber(ARGV[2])
if not seq or not newest or newest < seq then
  redis.call('HSET', KEYS[1], ARGV[1], 'stalled')
  redis.call('PUBLISH', 'solar:changed', string.match(KEYS[1], '{(.*)}') .. '/' .. ARGV[1])
  return 1
end
for i = 3, #KEYS do
  redis.call('DEL', KEYS[i])
  redis.call('ZREM', KEYS[2], string.match(KEYS[i], ':([^:]+)$'))
end
return 0
