-- Takes an event for one delivery, unless another has it or it was processed.
-- KEYS[1]: the event's key. ARGV: token, milliseconds of the claim, attempt (<replayed>.<number>, or nothing).
-- Answers {first, ''}, {processed, ''}, {in progress, milliseconds left} or {stale, newest attempt}.
local token, millis, attempt = ARGV[1], ARGV[2], ARGV[3]

local function is_older(this, that)
  local r1, n1 = string.match(this, '^(%d+)%.(%d+)$')
  local r2, n2 = string.match(that, '^(%d+)%.(%d+)$')
  if not r1 or not r2 then return false end
  r1, n1, r2, n2 = tonumber(r1), tonumber(n1), tonumber(r2), tonumber(n2)
  return r1 < r2 or (r1 == r2 and n1 < n2)
end

local function claimed(holder, seen)
  if seen == '' then return 'claimed:' .. holder end
  return 'claimed:' .. holder .. ':' .. seen
end

local value = redis.call('get', KEYS[1])
local holder, seen = false, ''
if value then
  if string.sub(value, 1, 8) == 'claimed:' then
    holder, seen = string.match(value, '^claimed:([^:]*):?(.*)$')
  elseif string.sub(value, 1, 9) == 'released:' then
    seen = string.sub(value, 10)
  else
    return {'processed', ''}
  end
end

if holder ~= token and is_older(attempt, seen) then
  return {'stale', seen}
end
local newest = seen
if attempt ~= '' and not is_older(attempt, seen) then newest = attempt end

-- A claim with our token is our own: the answer to an earlier try was lost.
if not holder or holder == token then
  redis.call('set', KEYS[1], claimed(token, newest), 'px', millis)
  return {'first', ''}
end

local left = redis.call('pttl', KEYS[1])
if left < 0 then
  -- Somebody else's claim that would never run out would be a loss.
  redis.call('pexpire', KEYS[1], millis)
  left = tonumber(millis)
end
if newest ~= seen then
  redis.call('set', KEYS[1], claimed(holder, newest), 'keepttl')
end
return {'in progress', tostring(left)}
