-- Remembers an event as processed, unless another delivery has taken it.
-- KEYS[1]: the event's key. ARGV: token, milliseconds to remember it, attempt (<replayed>.<number>, or nothing).
-- Answers {processed, ''} or {lost, ''}.
local token, millis, attempt = ARGV[1], ARGV[2], ARGV[3]

local function is(value, head)
  return value == head or string.sub(value, 1, #head + 1) == head .. ':'
end

local value = redis.call('get', KEYS[1])
local processed = 'processed:' .. token
if attempt ~= '' then processed = processed .. ':' .. attempt end

if value and is(value, 'processed:' .. token) then
  -- An earlier try did it, and its answer was lost.
  return {'processed', ''}
elseif value and is(value, 'claimed:' .. token) then
  processed = 'processed' .. string.sub(value, #'claimed' + 1)
elseif value and string.sub(value, 1, 9) ~= 'released:' then
  return {'lost', ''}
end
-- Ours, or nobody's: the claim ran out or was forgotten, but the effect has happened.
redis.call('set', KEYS[1], processed, 'px', millis)
return {'processed', ''}
