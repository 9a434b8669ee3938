-- Makes a claim last longer, or takes it again if nobody has it; its handler still runs.
-- KEYS[1]: the event's key. ARGV: token, milliseconds of the claim, attempt (<replayed>.<number>, or nothing).
-- Answers {extended, ''} or {lost, ''}.
local token, millis, attempt = ARGV[1], ARGV[2], ARGV[3]
local mine = 'claimed:' .. token
local done = 'processed:' .. token

local value = redis.call('get', KEYS[1])
if not value then
  if attempt ~= '' then mine = mine .. ':' .. attempt end
  redis.call('set', KEYS[1], mine, 'px', millis)
  return {'extended', ''}
elseif value == mine or string.sub(value, 1, #mine + 1) == mine .. ':' then
  redis.call('pexpire', KEYS[1], millis)
  return {'extended', ''}
elseif value == done or string.sub(value, 1, #done + 1) == done .. ':' then
  -- Its own commit, whose answer was lost: nothing to extend, and nothing lost.
  return {'extended', ''}
end
return {'lost', ''}
