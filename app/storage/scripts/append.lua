#!lua
-- Append all events of one post to the log, each once; or none, if one must be rebuilt.
-- KEYS: state seq log, then d:<event> of each event (if given), then the imp:<request> and the
--       e:<epoch>:<slice>:<bucket> of all events
-- ARGV: epoch, backlog limit in records and in work ('': none), time in ms, required seq of the last
--       record ('': any), '1' if a client waits, the field `slices` as the caller knows it, window of
--       the deduplication in ms ('' if all events are internal), TTL of d:<event> in ms ('' if they
--       are not given), number of events, chain of the committed state ('': any), then for each: hash of its id ('' of an internal
--       event: its entry is d:<event>), digest of the body, record, its work, number of its
--       conditions ('': none). Then for each of the conditions: number of imp:<request> in KEYS (''
--       without request, '-' if only a repeated event is accepted), tenant, expected and new
--       accumulated feedback, SHA-1 of the impression that the record builds on ('': any), time of
--       the event in ms ('': none), lifetime of the impression in ms if that is longer ('': as it is),
--       '1' if the event is not for the longer life of a list that was clicked
-- Returns a code for the post, then `slices` if it has changed, then code and seq of each event.
-- Post: 0 success, 1 no such model, 2 backlog limit reached, 3 another last record or committed
-- state, 4 the feedback or impression has changed (then the numbers of the events that are in the
-- log or refused), 5 other slices, 6 backlog limit of work reached, 7 the events alone exceed it, and
-- there are several; codes other than 0 append nothing. Event: 0 appended, 1 repeated, 2 same id with another body,
-- 3 no such impression, 4 older than the window, 5 too far ahead, 6 not repeated, 7 only clicks are
-- taken by now.
local GIVEN, EACH, CONDITIONS, AHEAD = 11, 5, 8, 300000
local KEYS, ARGV = KEYS, ARGV  -- locals are faster than globals: 8 % of a post of 100 events
-- A bucket has 64 entries on average when its slice is full: below the 512 of Redis's compact
-- encoding, also with all 2,000 events of a post on top. The next slice then has 16 times as many
-- buckets: few slices are to be asked. One that ends with less than 4 is followed by a smaller one.
local FULL, SPARSE, LEAST_BITS, MOST_BITS, STEP = 64, 4, 3, 19, 4

local model = redis.call(
  'HMGET', KEYS[1], 'epoch', 'seq', 'slices', 'sliced', 'charged', 'worked', 'chain'
)
if model[1] ~= ARGV[1] then return {1} end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local window, named, count = tonumber(ARGV[8]), ARGV[9] ~= '', tonumber(ARGV[10])
local start = tonumber(redis.call('GET', KEYS[2]))

-- `slices`: time until which older processes may read and write d:<event>, then number:bits:opened
-- of each slice. `sliced`: entries in the newest slice, and the last record that was appended here.
local text, legacy, slices = model[3] or '', 0, {}
for word in string.gmatch(text, '%S+') do
  local number, bits, opened = string.match(word, '^(%d+):(%d+):(%d+)$')
  if number then
    slices[#slices + 1] = {number = tonumber(number), bits = tonumber(bits), opened = tonumber(opened)}
  else
    legacy = tonumber(word)
  end
end
local function written()
  local words = {now < legacy and string.format('%.0f', legacy) or '0'}
  for _, one in ipairs(slices) do
    words[#words + 1] = string.format('%d:%d:%.0f', one.number, one.bits, one.opened)
  end
  return table.concat(words, ' ')
end
local filled, last = string.match(model[4] or '', '^(%d+):(%d+)$')
local behind = tonumber(last) ~= start  -- a process of an older release has appended
if window and behind and legacy < now + window then
  legacy = now + 2 * window
  if #slices == 0 then slices[1] = {number = 0, bits = LEAST_BITS, opened = now} end
  text = written()
  redis.call('HSET', KEYS[1], 'slices', text, 'sliced', (filled or 0) .. ':' .. start)
end
if window and text ~= ARGV[7] then return {5, text} end
local prefix = string.sub(KEYS[1], 1, -6) .. 'e:' .. ARGV[1] .. ':'
local newest = slices[#slices]
filled = tonumber(filled or 0)

-- Return the entries of all events in a slice by id, and the bucket of each: its key and the longest
-- window of its entries, which is in the empty field. One call reads all entries of a bucket.
local function read(slice)
  local size, start_of_key = 2 ^ slice.bits, prefix .. slice.number .. ':'
  local buckets, all, entries, bucket_of = {}, {}, {}, {}
  for i = 1, count do
    local id = ARGV[GIVEN + EACH * (i - 1) + 1]
    local a, b, c = string.byte(id, 1, 3)
    local number = (a + 256 * b + 65536 * c) % size
    local bucket = buckets[number]
    if bucket then
      bucket[#bucket + 1] = id
    else
      bucket = {start_of_key .. number, '', id}
      buckets[number], all[#all + 1] = bucket, bucket
    end
    bucket_of[id] = bucket
  end
  for _, bucket in ipairs(all) do
    local found = redis.call('HMGET', unpack(bucket))
    for at = 3, #bucket do entries[bucket[at]] = found[at - 1] end
    bucket.longest = tonumber(found[1] or '') or 0
  end
  return entries, bucket_of, all
end

local entries, bucket_of, buckets = {}, {}, {}
if window then
  entries, bucket_of, buckets = read(newest)
  for s = #slices - 1, 1, -1 do
    for id, entry in pairs((read(slices[s]))) do entries[id] = entries[id] or entry end
  end
end

-- Return the seq of a stored event, and whether its body is the same.
local function find(id, name, digest)
  local entry = entries[id]
  if entry then
    return tonumber(string.sub(entry, 9)), string.sub(entry, 1, 8) == string.sub(digest, 1, 8)
  end
  if id ~= '' and (not name or now >= legacy) then return nil end
  entry = redis.call('GET', name)
  if not entry then return nil end
  local seq, body = string.match(entry, '^(%d+):(.*)$')
  return tonumber(seq), body == digest
end

-- Return a code other than 0 if an event is refused, and whether it builds on other feedback.
local so_far, lifetimes = {}, {}  -- accumulated feedback of this post, and lifetimes of impressions
-- `u` of an impression that lives longer since its first click: the end of its first lifetime. What
-- comes of it then must find in the list that it was learnt: deduplication may have forgotten it.
local ends = {}
local function check(at)
  local on, expected, list, moment = ARGV[at + 1], ARGV[at + 3], ARGV[at + 5], tonumber(ARGV[at + 6])
  if on == '-' then return 6 end
  local shown, key = nil, KEYS[tonumber(on)]
  if key then
    shown = redis.call('HMGET', key, 'i', 'a', 't', 'u')
    if not shown[1] or (shown[3] and shown[3] ~= ARGV[at + 2]) then return 3 end
    ends[key] = tonumber(shown[4] or '')
    if ARGV[at + 8] == '1' and ends[key] and now >= ends[key] then return 7 end
  end
  if moment and moment < now - window then return 4 end
  if moment and moment > now + AHEAD then return 5 end
  if key and (so_far[key] or shown[2] or '') ~= expected then return 0, true end
  if list ~= '' and redis.sha1hex(shown[1]) ~= list then return 0, true end
  if key then so_far[key] = ARGV[at + 4] end
  if key and ARGV[at + 7] ~= '' then lifetimes[key] = ARGV[at + 7] end
  return 0
end

local tail, answer, fresh, changed, skipped = start, {0, ''}, {}, false, {4, ''}
local known, bodies = {}, {}  -- seqs and digests of the events of this post
local function answered(i, code, seq) answer[2 * i + 1], answer[2 * i + 2] = code, seq end
for i = 1, count do
  local at, name = GIVEN + EACH * (i - 1), named and KEYS[3 + i]
  local id, digest, conditions = ARGV[at + 1], ARGV[at + 2], ARGV[at + 5]
  local which, same = id == '' and name or id, nil
  local seq = known[which]
  if seq then
    answered(i, bodies[which] == digest and 1 or 2, seq)
  else
    seq, same = find(id, name, digest)
    local code, other = 0, false
    if not seq and conditions ~= '' then
      code, other = check(GIVEN + EACH * count + CONDITIONS * (conditions - 1))
    end
    if seq or code > 0 then
      answered(i, seq and (same and 1 or 2) or code, seq or 0)
      skipped[#skipped + 1] = i
    elseif other then
      changed = true
    else
      tail = tail + 1
      known[which], bodies[which] = tail, digest
      answered(i, 0, tail)
      fresh[#fresh + 1] = i
    end
  end
end
if changed then return skipped end
if #fresh == 0 then return answer end
if tail - tonumber(model[2]) > tonumber(ARGV[2]) then return {2} end
if ARGV[5] ~= '' and start ~= tonumber(ARGV[5]) then return {3} end
if ARGV[11] ~= '' and model[7] ~= ARGV[11] then return {3} end

-- `charged`: work of all records so far. `worked`: seq of a commit, and the work up to it. The rest
-- waits. It is unknown after a commit of an older process; it is none after the last record.
local committed, charged = tonumber(model[2]), tonumber(model[5] or '') or 0
local at, done = string.match(model[6] or '', '^(%d+):(%d+)$')
local drained, waiting = start == committed, 0
if not drained and tonumber(at) == committed then waiting = charged - done end
if ARGV[3] ~= '' then
  local most, new = tonumber(ARGV[3]), 0
  for _, i in ipairs(fresh) do new = new + ARGV[GIVEN + EACH * (i - 1) + 4] end
  if new > most and #fresh > 1 then return {7} end
  if waiting > 0 and waiting + new > most then return {6} end
end
local kept = {KEYS[1]}
if drained then kept = {KEYS[1], 'worked', string.format('%.0f:%.0f', committed, charged)} end

-- Return the request that an event gives feedback on, by the number of its conditions.
local requests = #string.sub(KEYS[1], 1, -6) + #('imp:' .. ARGV[1] .. ':') + 1
local function request_of(conditions)
  if conditions == '' then return nil end
  local key = KEYS[tonumber(ARGV[GIVEN + EACH * count + CONDITIONS * (conditions - 1) + 1])]
  return key and string.sub(key, requests)
end
-- A bucket takes entries for half a window, so that its first TTL is long enough for all of them. It
-- takes no more if the clock went back to before its slice: a new bucket would expire too early.
local late = window and (now < newest.opened or now - newest.opened >= window / 2)
local log, time, waited = KEYS[3], ARGV[4], ARGV[6] == '1'
for _, i in ipairs(fresh) do
  local at, name, seq = GIVEN + EACH * (i - 1), named and KEYS[3 + i], answer[2 * i + 2]
  local id, digest = ARGV[at + 1], ARGV[at + 2]
  charged = charged + ARGV[at + 4]
  local record, work, request = ARGV[at + 3], string.format('%.0f', charged), request_of(ARGV[at + 5])
  if request or waited then
    local fields = {'r', record, 't', time, 'k', work}
    if waited then fields[7], fields[8] = 'w', '1' end
    if request then fields[#fields + 1], fields[#fields + 2] = 'q', request end
    redis.call('XADD', log, seq .. '-0', unpack(fields))
  else
    redis.call('XADD', log, seq .. '-0', 'r', record, 't', time, 'k', work)
  end
  if id ~= '' then
    local bucket = bucket_of[id]
    local new = bucket.new
    if not new then
      new = bucket.longest < window and {bucket[1], '', window} or {bucket[1]}
      bucket.new = new
    end
    new[#new + 1], new[#new + 2] = id, string.sub(digest, 1, 8) .. seq
    filled = filled + 1
  end
  if id == '' or (name and now < legacy) then
    redis.call('SET', name, seq .. ':' .. digest, 'PX', ARGV[9])
  end
end
for key, feedback in pairs(so_far) do redis.call('HSET', key, 'a', feedback) end
for key, lifetime in pairs(lifetimes) do
  local left = redis.pcall('PTTL', key)  -- of a user without the right to it lists live no longer
  if type(left) == 'number' and left > 0 then
    if not ends[key] then redis.call('HSET', key, 'u', string.format('%.0f', now + left)) end
    redis.call('PEXPIRE', key, lifetime, 'GT')
  end
end
for _, bucket in ipairs(buckets) do
  if bucket.new then
    redis.call('HSET', unpack(bucket.new))
    if late or bucket.longest < window then
      local longest = math.max(bucket.longest, window)
      redis.call('PEXPIRE', bucket[1], math.ceil(1.5 * longest) + AHEAD)
    end
  end
end
redis.call('SET', KEYS[2], tail)

if window then
  local bits, size = nil, 2 ^ newest.bits
  if filled >= FULL * size then
    bits = math.min(MOST_BITS, newest.bits + STEP)
  elseif late then
    bits = filled < SPARSE * size and math.max(LEAST_BITS, newest.bits - STEP) or newest.bits
  end
  if bits then
    slices[#slices + 1], filled = {number = newest.number + 1, bits = bits, opened = now}, 0
  end
  local expired = 0  -- after a clock that went back, a slice may be older than the one before it
  for s = 2, #slices do
    if slices[s].opened + window + AHEAD < now then expired = s - 1 end
  end
  if bits or expired > 0 then
    for _ = 1, expired do table.remove(slices, 1) end
    answer[2] = written()
    redis.call('HSET', KEYS[1], 'slices', answer[2])
  end
end
kept[#kept + 1], kept[#kept + 2] = 'charged', string.format('%.0f', charged)
if window or not behind then
  kept[#kept + 1], kept[#kept + 2] = 'sliced', filled .. ':' .. tail
end
redis.call('HSET', unpack(kept))
if drained then  -- else a learner has earlier records to apply
  redis.call('PUBLISH', 'solar:appended', string.match(KEYS[1], '{(.*)}'))
end
return answer
