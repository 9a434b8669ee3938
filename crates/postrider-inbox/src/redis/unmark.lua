-- Takes back a mark whose caller did not learn of it, so that the next delivery is handled.
-- KEYS[1]: the event's key. ARGV: token.
-- Answers {unmarked, ''} or {lost, ''} if the mark is not there or not ours.
if redis.call('get', KEYS[1]) == 'processed:' .. ARGV[1] then
  redis.call('del', KEYS[1])
  return {'unmarked', ''}
end
return {'lost', ''}
