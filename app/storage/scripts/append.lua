#!lua
-- Append all events of one post to the log, each once; or none, if one must be rebuilt.
-- KEYS: state seq log, then d:<event> of each event (if given), then the imp:<request> and the
--       e:<epoch>:<slice>:<bucket> of all events
-- ARGV: epoch, backlog limit, time in ms, required seq of the last record ('': any), '1' if a client
--       waits, the field `slices` as the caller knows it, window of the deduplication in ms ('' if
--       all events are internal), TTL of d:<event> in ms ('' if they are not given), number of
--       events, then for each event: hash of its id ('' of an internal event: its entry is
--       d:<event>), digest of the body, record, number of imp:<request> in KEYS and the tenant (''
--       without request, '-' if only a repeated event is accepted), expected and new accumulated
--       feedback, SHA-1 of the impression that the record builds on ('': any), its time in ms ('':
--       none)
-- Returns a code for the post, then `slices` if it has changed, then for each event {code, seq}.
-- Post: 0 success, 1 no such model, 2 backlog limit reached, 3 another last record, 4 the feedback
-- or impression has changed (then the numbers of the events that are in the log or refused), 5 other
-- slices; codes other than 0 append nothing. Event: 0 appended, 1 repeated, 2 same id with another body,
-- 3 no such impression, or not repeated, 4 older than the window, 5 too far ahead.
local EACH, AHEAD = 8, 300000
-- A bucket has 64 entries on average when its slice is full: below the 512 of Redis's compact
-- encoding, also with all 2,000 events of a post on top. The next slice then has 16 times as many
-- buckets: few slices are to be asked. One that ends with less than 4 is followed by a smaller one.
local FULL, SPARSE, LEAST_BITS, MOST_BITS, STEP = 64, 4, 3, 19, 4

local model = redis.call('HMGET', KEYS[1], 'epoch', 'seq', 'slices', 'sliced')
if model[1] ~= ARGV[1] then return {1} end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local window, named, count = tonumber(ARGV[7]), ARGV[8] ~= '', tonumber(ARGV[9])
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
if window and text ~= ARGV[6] then return {5, text} end
local prefix = string.sub(KEYS[1], 1, -6) .. 'e:' .. ARGV[1] .. ':'
local newest = slices[#slices]
filled = tonumber(filled or 0)

local function bucket(id, slice)
  local a, b, c = string.byte(id, 1, 3)
  return prefix .. slice.number .. ':' .. (a + 256 * b + 65536 * c) % 2 ^ slice.bits
end

-- Return the key of the impression that an event is on, and its tenant.
local function request_of(on)
  local number, tenant = string.match(on, '^(%d+) (.*)$')
  return KEYS[tonumber(number)], tenant
end

-- Return the seq of a stored event, and whether its body is the same. The empty field of a bucket is
-- the longest window of its entries, so that one call tells whether it lasts long enough.
local longest = {}
local function find(id, name, digest)
  if id ~= '' then
    local key = bucket(id, newest)
    local found = redis.call('HMGET', key, '', id)
    local entry = found[2]
    longest[key] = tonumber(found[1] or '') or 0
    for s = #slices - 1, 1, -1 do
      entry = entry or redis.call('HGET', bucket(id, slices[s]), id)
    end
    if entry then
      return tonumber(string.sub(entry, 9)), string.sub(entry, 1, 8) == string.sub(digest, 1, 8)
    end
    if not name or now >= legacy then return nil end
  end
  local entry = redis.call('GET', name)
  if not entry then return nil end
  local seq, body = string.match(entry, '^(%d+):(.*)$')
  return tonumber(seq), body == digest
end

local tail, answer, fresh, changed, skipped = start, {0, ''}, {}, false, {4, ''}
local known, so_far = {}, {}  -- events and accumulated feedback of this post
for i = 1, count do
  local at, name = EACH * i + 1, named and KEYS[3 + i]
  local id, digest, on = ARGV[at + 1], ARGV[at + 2], ARGV[at + 4]
  local expected, new, list, moment = ARGV[at + 5], ARGV[at + 6], ARGV[at + 7], ARGV[at + 8]
  local which, seq, same = id == '' and name or id, nil, nil
  local earlier = known[which]
  if earlier then
    seq, same = earlier[1], earlier[2] == digest
  else
    seq, same = find(id, name, digest)
  end
  local request, tenant, shown
  if not seq and on ~= '' and on ~= '-' then
    request, tenant = request_of(on)
    shown = redis.call('HMGET', request, 'i', 'a', 't')
  end
  if seq then
    answer[i + 2] = {same and 1 or 2, seq}
    if not earlier then skipped[#skipped + 1] = i end
  elseif (shown and (not shown[1] or (shown[3] and shown[3] ~= tenant)))
      or on == '-' then
    answer[i + 2], skipped[#skipped + 1] = {3, 0}, i
  elseif moment ~= '' and tonumber(moment) < now - window then
    answer[i + 2], skipped[#skipped + 1] = {4, 0}, i
  elseif moment ~= '' and tonumber(moment) > now + AHEAD then
    answer[i + 2], skipped[#skipped + 1] = {5, 0}, i
  elseif (shown and (so_far[request] or shown[2] or '') ~= expected)
      or (list ~= '' and redis.sha1hex(shown[1]) ~= list) then
    changed = true
  else
    tail = tail + 1
    known[which] = {tail, digest}
    if shown then so_far[request] = new end
    answer[i + 2] = {0, tail}
    fresh[#fresh + 1] = i
  end
end
if changed then return skipped end
if #fresh == 0 then return answer end
if tail - tonumber(model[2]) > tonumber(ARGV[2]) then return {2} end
if ARGV[4] ~= '' and start ~= tonumber(ARGV[4]) then return {3} end

local waits = ARGV[5] == '1' and {'w', '1'} or {}
-- A bucket takes entries for half a window, so that its first TTL is long enough for all of them. It
-- takes no more if the clock went back to before its slice: a new bucket would expire too early.
local late = window and (now < newest.opened or now - newest.opened >= window / 2)
for _, i in ipairs(fresh) do
  local at, name, seq = EACH * i + 1, named and KEYS[3 + i], answer[i + 2][2]
  local id, digest = ARGV[at + 1], ARGV[at + 2]
  redis.call('XADD', KEYS[3], seq .. '-0', 'r', ARGV[at + 3], 't', ARGV[3], unpack(waits))
  if id ~= '' then
    local key = bucket(id, newest)
    local entry = string.sub(digest, 1, 8) .. seq
    local lengthened = longest[key] < window
    if lengthened then
      longest[key] = window
      redis.call('HSET', key, '', window, id, entry)
    else
      redis.call('HSET', key, id, entry)
    end
    if lengthened or late then
      redis.call('PEXPIRE', key, math.ceil(1.5 * longest[key]) + AHEAD)
    end
    filled = filled + 1
  end
  if id == '' or (name and now < legacy) then
    redis.call('SET', name, seq .. ':' .. digest, 'PX', ARGV[8])
  end
  if ARGV[at + 4] ~= '' then redis.call('HSET', (request_of(ARGV[at + 4])), 'a', ARGV[at + 6]) end
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
if window or not behind then redis.call('HSET', KEYS[1], 'sliced', filled .. ':' .. tail) end
if start == tonumber(model[2]) then  -- else a learner has earlier records to apply
  redis.call('PUBLISH', 'solar:appended', string.match(KEYS[1], '{(.*)}'))
end
return answer
