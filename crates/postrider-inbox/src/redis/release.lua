-- Lets the next delivery of an event in, unless it is in already.
-- KEYS[1]: the event's key. ARGV: token, milliseconds to remember the attempt.
-- Answers {released, ''}, also when the claim is gone, or {lost, ''}.
local mine = 'claimed:' .. ARGV[1]

local value = redis.call('get', KEYS[1])
if not value or string.sub(value, 1, 9) == 'released:' then
  return {'released', ''}
elseif value == mine then
  redis.call('del', KEYS[1])
  return {'released', ''}
elseif string.sub(value, 1, #mine + 1) == mine .. ':' then
  -- An older attempt that comes late is to be known as such.
  redis.call('set', KEYS[1], 'released:' .. string.sub(value, #mine + 2), 'px', ARGV[2])
  return {'released', ''}
end
return {'lost', ''}
