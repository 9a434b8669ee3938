-- Enqueue, told apart: a dedupe key that a row holds which row security hides from the caller. It does not come and go, so trying
-- again would fail for ever; and no constraint tells another tenant's keys, because a key begins with its own tenant's id.
-- Also, the nil UUID is no tenant. Everything else is as it was.
create or replace function {enqueue}(
  namespace     text,
  topic         text,
  payload       jsonb       default 'null',
  key           text        default null,
  tenant_id     uuid        default null,
  dedupe_key    text        default null,
  headers       jsonb       default '{}',
  deliver_at    timestamptz default null,
  max_attempts  int         default null,
  payload_bytes bytea       default null,
  content_type  text        default null,
  out id        uuid,
  out is_new    boolean
)
language plpgsql volatile
as $function$
#variable_conflict use_column
declare
  given   record;
  problem text;
  advice  text;
  sent    jsonb := coalesce({function}.headers, '{}');
begin
  for given in
    select * from (values ('namespace', {function}.namespace), ('topic', {function}.topic)) as names(what, name)
  loop
    if coalesce(given.name, '') = '' then
      problem := format('the %s is empty', given.what);
      advice := 'Give it at least one character.';
    elsif octet_length(given.name) > 200 then
      problem := format('the %s has %s bytes, the limit is 200', given.what, octet_length(given.name));
      advice := 'Shorten it.';
    elsif given.name !~ '^[A-Za-z0-9._:/-]+$' then
      problem := format('the %s holds a character that is not allowed', given.what);
      advice := 'Use ASCII letters, digits and . _ - : /';
    end if;
  end loop;
  for given in
    select * from (values ('key', {function}.key), ('dedupe key', {function}.dedupe_key)) as keys(what, key)
  loop
    if given.key = '' then
      problem := format('the %s is empty', given.what);
      advice := 'Give it at least one character, or null.';
    elsif octet_length(given.key) > 512 then
      problem := format('the %s has %s bytes, the limit is 512', given.what, octet_length(given.key));
      advice := 'Shorten it.';
    elsif given.key ~ '[\u0001-\u001f\u007f-\u009f]' then
      problem := format('the %s holds a control character', given.what);
      advice := 'Remove it.';
    end if;
  end loop;
  if {function}.tenant_id is not null and {function}.dedupe_key is not null
     and not starts_with({function}.dedupe_key, {function}.tenant_id::text || '/')
     and not starts_with({function}.dedupe_key, replace({function}.tenant_id::text, '-', '') || '/') then
    problem := format('the dedupe key does not begin with the tenant''s id %s and ''/''', {function}.tenant_id);
    advice := 'Prefix it with the id in lower case, with or without hyphens, or leave one of the two out.';
  end if;
  if {function}.tenant_id = '00000000-0000-0000-0000-000000000000' then
    problem := 'the tenant is the nil UUID, which stands for no tenant';
    advice := 'Give the tenant''s own id, or null.';
  end if;
  if {function}.max_attempts not between 1 and 1000 then
    problem := format('max_attempts is %s', {function}.max_attempts);
    advice := 'It must be from 1 to 1000.';
  end if;
  if {function}.deliver_at not between timestamptz 'epoch' and timestamptz '9999-12-31 23:59:59+00' then
    problem := 'the delivery time is out of range';
    advice := 'Use a time between 1970 and 9999.';
  end if;
  if {function}.payload_bytes is null and {function}.payload is null then
    problem := 'the payload is null';
    advice := 'Give a JSON payload, or payload_bytes.';
  elsif greatest(octet_length({function}.payload_bytes), octet_length({function}.payload::text)) > 1048576 then
    problem := format('the payload has %s bytes, the limit is 1048576',
      greatest(octet_length({function}.payload_bytes), octet_length({function}.payload::text)));
    advice := 'Send a reference to it instead.';
  elsif {function}.payload_bytes is null and octet_length({function}.payload::text) > 127
    and jsonb_path_exists({function}.payload, 'strict $.**{127} ? (@.type() == "object" || @.type() == "array")') then
    problem := 'the JSON payload nests deeper than 127 levels';
    advice := 'Change it or send it as bytes.';
  end if;
  if jsonb_typeof(sent) <> 'object' then
    problem := 'the headers are not a JSON object';
    advice := 'Give an object of strings.';
  elsif sent <> '{}' then
    if (select count(*) from jsonb_object_keys(sent)) > 64 then
      problem := 'the message has more than 64 headers';
      advice := 'Put them into the payload.';
    end if;
    for given in select * from jsonb_each(sent) as header(name, value) loop
      if given.name !~ '^[A-Za-z0-9!#$%&''*+.^_`|~-]{1,128}$' then
        problem := format('the header name %L is not a token', left(given.name, 64));
        advice := 'Use ASCII letters, digits and !#$%&''*+-.^_`|~';
      elsif lower(given.name) like 'postrider-%' then
        problem := format('the header %L is reserved for Postrider', given.name);
        advice := 'Choose another name.';
      elsif jsonb_typeof(given.value) <> 'string' or octet_length(given.value #>> '{}') > 4096
         or given.value #>> '{}' ~ '[\u0001-\u001f\u007f-\u009f]' then
        problem := format('the value of header %L is not a string, is longer than 4096 bytes or holds a control character', given.name);
        advice := 'Give a shorter string without control characters.';
      end if;
    end loop;
    sent := (select jsonb_object_agg(lower(header.name), header.value) from jsonb_each(sent) as header(name, value));
  end if;
  if {function}.payload_bytes is not null then
    if octet_length({function}.content_type) > 4096 or {function}.content_type ~ '[\u0001-\u001f\u007f-\u009f]' then
      problem := 'the content type is longer than 4096 bytes or holds a control character';
      advice := 'Give something like application/octet-stream.';
    end if;
    sent := sent || jsonb_build_object('content-type', coalesce({function}.content_type, 'application/octet-stream'));
  end if;
  if problem is not null then
    raise exception using errcode = '22023', message = 'outbox message refused: ' || problem, hint = advice;
  end if;

  -- Another transaction may hold the dedupe key and vanish before we look; a few rounds settle that.
  for round in 1 .. 3 loop
    insert into {table} as row
      (namespace, topic, key, tenant_id, dedupe_key, payload, payload_bytes, headers, next_attempt_at, max_attempts)
    values
      ({function}.namespace, {function}.topic, {function}.key, {function}.tenant_id, {function}.dedupe_key,
       case when {function}.payload_bytes is null then {function}.payload else 'null' end, {function}.payload_bytes, sent,
       coalesce({function}.deliver_at, now()), {function}.max_attempts)
    on conflict (namespace, topic, dedupe_key) where dedupe_key is not null do nothing
    returning row.id into {function}.id;
    if {function}.id is not null then
      {function}.is_new := true;
      if not (pg_try_advisory_xact_lock_shared(hashtextextended('{bell}', 0))
              and pg_try_advisory_xact_lock_shared(hashtextextended('{bell}:' || {function}.namespace, 0))) then
        perform pg_notify('{channel}', '{bell}');
      end if;
      return;
    end if;
    select row.id into {function}.id from {table} as row
    where row.namespace = {function}.namespace and row.topic = {function}.topic
      and row.dedupe_key = {function}.dedupe_key and row.dedupe_key is not null;
    if {function}.id is not null then
      {function}.is_new := false;
      return;
    end if;
  end loop;
  if row_security_active('{table}') then
    raise exception using errcode = '23505', message = 'the dedupe key is held by a row that this role does not see',
      hint = 'Row security hides it: a row without a tenant, or of another, has this tenant''s key. Let who sees all rows delete it or change its key.';
  end if;
  raise exception using errcode = '40001', message = 'rows with this dedupe key come and go',
    hint = 'Roll the transaction back and try it again.';
end
$function$;
