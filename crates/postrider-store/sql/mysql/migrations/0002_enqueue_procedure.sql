-- Enqueue for producers in any language, with the checks that the Rust library makes before SQL.
drop procedure if exists {enqueue}
-- next statement
-- Call it in the transaction that makes the change; it answers one row with the message's id and whether it is new (1) or
-- its dedupe key was there already (0):
--   call postrider_enqueue('shop', 'order.placed', '{"order": 7}', null);
--   call postrider_enqueue('shop', 'order.placed', '{"order": 7}', '{"dedupe_key": "order-7", "max_attempts": 5}');
-- The last argument is null or a JSON object of what is needed of: key, tenant_id, dedupe_key, headers (an object of
-- strings), deliver_at (UTC, like "2030-01-31T12:00:00Z"), max_attempts, payload_base64 and content_type (for bytes
-- instead of JSON; the payload is then null). A refused message raises 22023 and leaves the transaction as it was.
create procedure {enqueue}(
  in in_namespace longtext character set utf8mb4 collate utf8mb4_bin,
  in in_topic     longtext character set utf8mb4 collate utf8mb4_bin,
  in in_payload   longtext character set utf8mb4 collate utf8mb4_bin,
  in in_options   longtext character set utf8mb4 collate utf8mb4_bin
)
modifies sql data
sql security invoker
enqueue: begin
  declare problem, advice, found_key, found_dedupe_key, found_tenant, found_time, found_type, header_name, header_value
    longtext character set utf8mb4 collate utf8mb4_bin;
  declare options, headers, sent, header_names longtext character set utf8mb4 collate utf8mb4_bin default '{}';
  declare bytes longblob;
  declare attempts, header_at, tries, turn int default 0;
  declare due_at datetime(6);
  -- of the columns' own character set, because comparing with another one would keep the index from being used
  declare at_namespace, at_topic varchar(200) character set ascii collate ascii_bin;
  declare new_id, holder char(36) character set ascii collate ascii_bin;
  -- control characters, written without a backslash because a session may take that literally
  declare control varchar(16) character set utf8mb4 collate utf8mb4_bin
    default concat('[', char(1 using utf8mb4), '-', char(31 using utf8mb4), char(127 using utf8mb4), '-', char(0xC29F using utf8mb4), ']');
  declare nul char(1) character set utf8mb4 collate utf8mb4_bin default char(0 using utf8mb4);

  if coalesce(octet_length(in_namespace), 0) = 0 then
    set problem = 'the namespace is empty', advice = 'give it at least one character';
  elseif octet_length(in_namespace) > 200 then
    set problem = concat('the namespace has ', octet_length(in_namespace), ' bytes, the limit is 200'), advice = 'shorten it';
  elseif in_namespace regexp '[^A-Za-z0-9._:/-]' then
    set problem = 'the namespace holds a character that is not allowed', advice = 'use ASCII letters, digits and . _ - : /';
  elseif coalesce(octet_length(in_topic), 0) = 0 then
    set problem = 'the topic is empty', advice = 'give it at least one character';
  elseif octet_length(in_topic) > 200 then
    set problem = concat('the topic has ', octet_length(in_topic), ' bytes, the limit is 200'), advice = 'shorten it';
  elseif in_topic regexp '[^A-Za-z0-9._:/-]' then
    set problem = 'the topic holds a character that is not allowed', advice = 'use ASCII letters, digits and . _ - : /';
  end if;

  if problem is null and in_options is not null then
    if not json_valid(in_options) or json_type(in_options) <> 'OBJECT' then
      set problem = 'the options are not a JSON object', advice = 'give an object, or null';
    else
      set options = in_options;
      if json_length(json_remove(json_set(options, '$.key', 1, '$.tenant_id', 1, '$.dedupe_key', 1, '$.headers', 1,
          '$.deliver_at', 1, '$.max_attempts', 1, '$.payload_base64', 1, '$.content_type', 1),
          '$.key', '$.tenant_id', '$.dedupe_key', '$.headers', '$.deliver_at', '$.max_attempts', '$.payload_base64',
          '$.content_type')) > 0 then
        set problem = 'the options hold an unknown name', advice = 'see the comment in the migration for the names';
      elseif json_type(json_extract(options, '$.key')) not in ('STRING', 'NULL')
          or json_type(json_extract(options, '$.tenant_id')) not in ('STRING', 'NULL')
          or json_type(json_extract(options, '$.dedupe_key')) not in ('STRING', 'NULL')
          or json_type(json_extract(options, '$.deliver_at')) not in ('STRING', 'NULL')
          or json_type(json_extract(options, '$.payload_base64')) not in ('STRING', 'NULL')
          or json_type(json_extract(options, '$.content_type')) not in ('STRING', 'NULL') then
        set problem = 'an option that must be a string is none', advice = 'only headers and max_attempts are no strings';
      else
        set found_key = if(json_type(json_extract(options, '$.key')) = 'STRING', json_unquote(json_extract(options, '$.key')), null),
            found_dedupe_key = if(json_type(json_extract(options, '$.dedupe_key')) = 'STRING', json_unquote(json_extract(options, '$.dedupe_key')), null),
            found_tenant = if(json_type(json_extract(options, '$.tenant_id')) = 'STRING', lower(json_unquote(json_extract(options, '$.tenant_id'))), null),
            found_time = if(json_type(json_extract(options, '$.deliver_at')) = 'STRING', json_unquote(json_extract(options, '$.deliver_at')), null),
            found_type = if(json_type(json_extract(options, '$.content_type')) = 'STRING', json_unquote(json_extract(options, '$.content_type')), null);
        if json_type(json_extract(options, '$.payload_base64')) = 'STRING' then
          -- MariaDB raises an error for what is no base64, MySQL answers null
          begin
            declare continue handler for sqlexception set bytes = null;
            set bytes = from_base64(json_unquote(json_extract(options, '$.payload_base64')));
          end;
          if bytes is null then
            set problem = 'payload_base64 is not base64', advice = 'encode the bytes with the standard alphabet';
          end if;
        end if;
      end if;
    end if;
  end if;

  if problem is null then
    -- lengths, because a comparison ignores trailing spaces
    if octet_length(found_key) = 0 or octet_length(found_dedupe_key) = 0 then
      set problem = concat('the ', if(octet_length(found_key) = 0, 'key', 'dedupe key'), ' is empty'), advice = 'give it at least one character, or null';
    elseif octet_length(found_key) > 512 or octet_length(found_dedupe_key) > 512 then
      set problem = concat('the ', if(octet_length(found_key) > 512, 'key', 'dedupe key'), ' has more than 512 bytes'), advice = 'shorten it';
    elseif found_key regexp control or instr(found_key, nul) > 0 or found_dedupe_key regexp control or instr(found_dedupe_key, nul) > 0 then
      set problem = 'the key or dedupe key holds a control character', advice = 'remove it';
    elseif octet_length(found_tenant) <> 36 or found_tenant not regexp {uuid_pattern} then
      set problem = 'the tenant_id is not a UUID', advice = 'write it with hyphens';
    elseif found_tenant is not null and found_dedupe_key is not null
        and left(found_dedupe_key, 37) <> concat(found_tenant, '/')
        and left(found_dedupe_key, 33) <> concat(replace(found_tenant, '-', ''), '/') then
      set problem = 'the dedupe key does not begin with the tenant''s id and ''/''', advice = 'prefix it, or leave one of the two out';
    end if;
  end if;

  if problem is null and json_type(json_extract(options, '$.max_attempts')) <> 'NULL' then
    if json_type(json_extract(options, '$.max_attempts')) not in ('INTEGER', 'UNSIGNED INTEGER')
        or cast(json_unquote(json_extract(options, '$.max_attempts')) as decimal(30)) not between 1 and 1000 then
      set problem = 'max_attempts is out of range', advice = 'it must be a whole number from 1 to 1000';
    else
      set attempts = cast(json_unquote(json_extract(options, '$.max_attempts')) as signed);
    end if;
  end if;

  if problem is null and found_time is not null then
    if found_time regexp '^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?Z?$' then
      begin
        -- a day that does not exist
        declare continue handler for sqlstate '22007' set due_at = null;
        set due_at = cast(trim(trailing 'Z' from replace(found_time, 'T', ' ')) as datetime(6));
      end;
    end if;
    -- some sessions let a month or day of zero pass
    if due_at is null or due_at < {epoch} or month(due_at) = 0 or dayofmonth(due_at) = 0 then
      set problem = 'deliver_at is not a time between 1970 and 9999', advice = 'write it in UTC, like 2030-01-31T12:00:00Z';
    end if;
  end if;

  if problem is null then
    if bytes is null and in_payload is null then
      set problem = 'the payload is null', advice = 'give a JSON payload, or payload_base64';
    elseif octet_length(bytes) > 1048576 or (bytes is null and octet_length(in_payload) > 1048576) then
      set problem = 'the payload has more than 1048576 bytes', advice = 'send a reference to it instead';
    elseif bytes is null and not json_valid(in_payload) then
      set problem = 'the payload is not JSON, or nests too deep', advice = 'send it as payload_base64';
    elseif bytes is null and found_type is not null then
      set problem = 'a content type is for bytes, the payload is JSON', advice = 'send payload_base64, or leave content_type out';
    elseif octet_length(found_type) > 4096 or found_type regexp control or instr(found_type, nul) > 0 then
      set problem = 'the content type is too long or holds a control character', advice = 'use one like text/plain';
    end if;
  end if;

  if problem is null and json_type(json_extract(options, '$.headers')) <> 'NULL' then
    set headers = json_extract(options, '$.headers');
    if json_type(headers) <> 'OBJECT' then
      set problem = 'the headers are not a JSON object', advice = 'give an object of strings';
    elseif json_length(headers) > 64 then
      set problem = 'the message has more than 64 headers', advice = 'put them into the payload';
    else
      set header_names = json_keys(headers);
      while problem is null and header_at < json_length(header_names) do
        set header_name = json_unquote(json_extract(header_names, concat('$[', header_at, ']')));
        if octet_length(header_name) not between 1 and 128 or header_name regexp '[^A-Za-z0-9!#$%&''*+.^_`|~-]' then
          set problem = 'a header name is not a token', advice = 'use ASCII letters, digits and !#$%&''*+-.^_`|~';
        elseif lower(header_name) like 'postrider-%' then
          set problem = 'header names with postrider- are reserved', advice = 'choose another name';
        else
          set header_value = json_extract(headers, concat('$."', header_name, '"'));
          if json_type(header_value) <> 'STRING' or octet_length(json_unquote(header_value)) > 4096
              or json_unquote(header_value) regexp control or instr(json_unquote(header_value), nul) > 0 then
            set problem = 'a header is no string, too long or holds a control character', advice = 'send up to 4096 plain bytes';
          else
            set sent = json_set(sent, concat('$."', lower(header_name), '"'), json_unquote(header_value));
          end if;
        end if;
        set header_at = header_at + 1;
      end while;
    end if;
  end if;

  if problem is not null then
    -- MySQL has room for 128 characters
    set problem = left(concat('outbox message refused: ', problem, '; ', advice), 128);
    signal sqlstate '22023' set message_text = problem;
  end if;
  if bytes is not null then
    -- the option comes before a header of the same name, and that before what is assumed
    set sent = if(found_type is null, json_insert(sent, '$."content-type"', 'application/octet-stream'),
      json_set(sent, '$."content-type"', found_type));
  end if;

  set at_namespace = in_namespace, at_topic = in_topic;
  -- Another transaction may hold the dedupe key and vanish before we look; a few rounds settle that.
  while tries < 3 do
    set new_id = {uuid_v7};
    if found_dedupe_key is not null then
      -- producers with the same key take turns, see the table
      set turn = (select slot from {turns} where slot = crc32(concat(at_namespace, char(0), at_topic, char(0), cast(found_dedupe_key as binary))) % 8192 for update);
      -- `set holder = (select …)` would lock what it reads and the gap beside it; max, so that there is always an answer
      select max(stored.id) into holder from {table} as stored force index ({name}_dedupe_idx)
        where stored.namespace = at_namespace and stored.topic = at_topic and stored.dedupe_key = cast(found_dedupe_key as binary);
      if holder is not null then
        select holder as id, 0 as is_new;
        leave enqueue;
      end if;
    end if;
    insert into {table}
      (id, namespace, topic, `key`, tenant_id, dedupe_key, payload, payload_bytes, headers, next_attempt_at, max_attempts)
    values
      (new_id, at_namespace, at_topic, cast(found_key as binary), found_tenant, cast(found_dedupe_key as binary),
       if(bytes is null, in_payload, 'null'), bytes, sent, coalesce(due_at, {now}), nullif(attempts, 0))
    on duplicate key update seq = seq;
    if found_dedupe_key is not null then
      -- our own row is always seen; locking it would lock the gap beside it, where other producers want to write
      select max(stored.id) into holder from {table} as stored force index ({name}_id_idx) where stored.id = new_id;
      if holder is null then
        -- a locking look sees what is committed, whatever the snapshot
        select max(stored.id) into holder from {table} as stored force index ({name}_dedupe_idx)
          where stored.namespace = at_namespace and stored.topic = at_topic and stored.dedupe_key = cast(found_dedupe_key as binary)
          lock in share mode;
      end if;
    else
      set holder = new_id;
    end if;
    if holder is not null then
      select holder as id, holder = new_id as is_new;
      leave enqueue;
    end if;
    set tries = tries + 1;
  end while;
  signal sqlstate '40001' set message_text = 'rows with this dedupe key come and go; roll the transaction back and try it again';
end
