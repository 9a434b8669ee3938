-- Marks an event as processed, as `set key processed nx px ttl` would, but not one that is being handled.
-- KEYS[1]: the event's key. ARGV: token, milliseconds to remember it.
-- Answers {first, ''}, {processed, ''} or {in progress, ''}.
local mine = 'processed:' .. ARGV[1]

local value = redis.call('get', KEYS[1])
if not value or string.sub(value, 1, 9) == 'released:' then
  redis.call('set', KEYS[1], mine, 'px', ARGV[2])
  return {'first', ''}
elseif value == mine then
  -- An earlier try did it, and its answer was lost.
  return {'first', ''}
elseif string.sub(value, 1, 8) == 'claimed:' then
  return {'in progress', ''}
end
return {'processed', ''}
