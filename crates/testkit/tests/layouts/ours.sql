-- claim
with recursive expired as materialized (
  select ctid, pg_column_size("payload") + coalesce(octet_length("payload_bytes"), 0) as size, "locked_until" as locked_until, "seq" as seq
  from "public"."outbox_messages"
  where "status" = 'processing' and "locked_until" < now()
    and "attempts" < coalesce("max_attempts", $3::int) and not "attempts" >= least(2, coalesce("max_attempts", $3::int) - 1)
    and ($1::text[] is null or "namespace" = any ($1::text[])) and ($2::uuid is null or "tenant_id" = $2::uuid)
  order by "locked_until"
  limit $4::bigint
  for update skip locked
),
namespaces(namespace, due_at) as (
  (select "namespace", "next_attempt_at" from "public"."outbox_messages"
   where $1::text[] is null and "status" = 'pending'
   order by "namespace", "next_attempt_at" limit 1)
  union all
  select next.* from namespaces as last, lateral (
    select "namespace", "next_attempt_at" from "public"."outbox_messages"
    where "status" = 'pending' and "namespace" > last.namespace
    order by "namespace", "next_attempt_at" limit 1) as next
),
share as materialized (
  select array_agg(namespace) as namespaces, ceil(($4::bigint - (select count(*) from expired))::numeric / nullif(count(*), 0))::bigint as size
  from (
    select namespace from namespaces where due_at <= now()
    union all
    select name from unnest($1::text[]) as name, lateral (
      select from "public"."outbox_messages" where "status" = 'pending' and "namespace" = name and "next_attempt_at" <= now()
      order by "next_attempt_at" limit 1) as any_due) as wanted(namespace)
),
candidates as materialized (
  select 1 as turn, ctid, size, locked_until as since, seq from expired
  union all
  select 2, row.*
  from share, unnest(share.namespaces) as wanted(namespace), lateral (
    select * from (
      select ctid, pg_column_size("payload") + coalesce(octet_length("payload_bytes"), 0) as size, "next_attempt_at" as since, "seq" as seq
      from "public"."outbox_messages"
      where "status" = 'pending' and "namespace" = wanted.namespace and "next_attempt_at" <= now()
        and "attempts" < coalesce("max_attempts", $3::int)
        and ($2::uuid is null or "tenant_id" = $2::uuid)
      order by "next_attempt_at", "seq"
      limit 1000
      for update skip locked) as head
    limit share.size) as row
),
-- Mostly all of them fit, and then nothing need be sorted or added up row by row.
picked as (
  select * from unnest(case
    when (select count(*) <= $4::bigint and sum(size) <= $7::bigint from candidates) then array(select ctid from candidates)
    else array(
      select ctid from (
        select *, sum(size) over (order by turn, since, seq rows unbounded preceding) - size as before from candidates) as counted
      where before < $7::bigint
      order by turn, since, seq
      limit $4::bigint)
  end) with ordinality as picked(ctid, few)
)
update "public"."outbox_messages" as row
set "status" = 'processing', "attempts" = greatest(row."attempts", 0) + 1, "locked_by" = $5::uuid, "locked_until" = now() + $6::bigint * interval '1 microsecond', "updated_at" = now()
from picked
where row.ctid = picked.ctid and picked.few between 0 and 2147483647
returning row."id" as id, row."namespace", row."topic", row."key", row."tenant_id", row."dedupe_key", row."payload"::text as payload, row."payload_bytes", case when row."headers" <> '{}' then row."headers"::text end as headers, row."attempts", row."max_attempts", row."created_at", row."seq", row.ctid::text as address, now() as claimed_at;

-- ack
update "public"."outbox_messages" as row
set "status" = 'delivered', "locked_by" = null, "locked_until" = null, "delivered_at" = now(), "updated_at" = now()
from unnest($1::text[]::tid[], $2::uuid[], $3::uuid[], $4::int[]) as given(address, id, worker, attempt)
where row.ctid = given.address and row."id" = given.id and row."locked_by" = given.worker and row."attempts" = given.attempt and (row."status" = 'processing') is true and given.attempt between 0 and 2147483647
returning row."id", given.attempt;

-- ack_delete
delete from "public"."outbox_messages" as row
using unnest($1::text[]::tid[], $2::uuid[], $3::uuid[], $4::int[]) as given(address, id, worker, attempt)
where row.ctid = given.address and row."id" = given.id and row."locked_by" = given.worker and row."attempts" = given.attempt and (row."status" = 'processing') is true and given.attempt between 0 and 2147483647 and row."dedupe_key" is null
returning row."id", given.attempt;

-- enqueue_one
insert into "public"."outbox_messages" ("id", "namespace", "topic", "key", "tenant_id", "dedupe_key", "payload", "payload_bytes", "headers", "next_attempt_at", "max_attempts")
select $1::uuid, $2::text, $3::text, $4::text, $5::uuid, $6::text, $7::text::jsonb, $8::bytea, coalesce($9::text::jsonb, '{}'), coalesce(timestamptz 'epoch' + $10::bigint * interval '1 microsecond', now() + $11::bigint * interval '1 microsecond', now()), $12::int
-- Always true. It stands here because a row that is returned costs the server more than both locks.
where (pg_try_advisory_xact_lock_shared(hashtextextended('postrider:public.outbox_messages', 0))
    and pg_try_advisory_xact_lock_shared(hashtextextended('postrider:public.outbox_messages:' || $2::text, 0))
    or pg_notify('postrider', 'postrider:public.outbox_messages') is not null);

-- enqueue_one, with a dedupe key
insert into "public"."outbox_messages" ("id", "namespace", "topic", "key", "tenant_id", "dedupe_key", "payload", "payload_bytes", "headers", "next_attempt_at", "max_attempts")
select $1::uuid, $2::text, $3::text, $4::text, $5::uuid, $6::text, $7::text::jsonb, $8::bytea, coalesce($9::text::jsonb, '{}'), coalesce(timestamptz 'epoch' + $10::bigint * interval '1 microsecond', now() + $11::bigint * interval '1 microsecond', now()), $12::int
-- Always true. It stands here because a row that is returned costs the server more than both locks.
where (pg_try_advisory_xact_lock_shared(hashtextextended('postrider:public.outbox_messages', 0))
    and pg_try_advisory_xact_lock_shared(hashtextextended('postrider:public.outbox_messages:' || $2::text, 0))
    or pg_notify('postrider', 'postrider:public.outbox_messages') is not null)
on conflict ("namespace", "topic", "dedupe_key") where "dedupe_key" is not null do nothing;

-- enqueue_many
insert into "public"."outbox_messages" ("id", "namespace", "topic", "key", "tenant_id", "dedupe_key", "payload", "payload_bytes", "headers", "next_attempt_at", "max_attempts")
select given.id, given.namespace, given.topic, given.key, given.tenant_id, given.dedupe_key, given.payload::jsonb, given.payload_bytes, coalesce(given.headers::jsonb, '{}'), coalesce(timestamptz 'epoch' + given.deliver_at * interval '1 microsecond', now() + given.delay * interval '1 microsecond', now()), given.max_attempts
from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::uuid[], $6::text[], $7::text[], $8::bytea[], $9::text[], $10::bigint[], $11::bigint[], $12::int[])
  as given(id, namespace, topic, key, tenant_id, dedupe_key, payload, payload_bytes, headers, deliver_at, delay, max_attempts)
-- Always true, and asked once.
where (
  select bool_and(case when pg_try_advisory_xact_lock_shared(hashtextextended('postrider:public.outbox_messages:' || namespace, 0)) then true else false end)
     and pg_try_advisory_xact_lock_shared(hashtextextended('postrider:public.outbox_messages', 0))
      or pg_notify('postrider', 'postrider:public.outbox_messages') is not null
  from (select distinct given.namespace as namespace from unnest($2::text[]) as given(namespace)) as namespaces
);

-- enqueue_many, with dedupe keys
with written as (
  insert into "public"."outbox_messages" ("id", "namespace", "topic", "key", "tenant_id", "dedupe_key", "payload", "payload_bytes", "headers", "next_attempt_at", "max_attempts")
  select given.id, given.namespace, given.topic, given.key, given.tenant_id, given.dedupe_key, given.payload::jsonb, given.payload_bytes, coalesce(given.headers::jsonb, '{}'), coalesce(timestamptz 'epoch' + given.deliver_at * interval '1 microsecond', now() + given.delay * interval '1 microsecond', now()), given.max_attempts
  from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::uuid[], $6::text[], $7::text[], $8::bytea[], $9::text[], $10::bigint[], $11::bigint[], $12::int[])
    as given(id, namespace, topic, key, tenant_id, dedupe_key, payload, payload_bytes, headers, deliver_at, delay, max_attempts)
  on conflict ("namespace", "topic", "dedupe_key") where "dedupe_key" is not null do nothing
  returning "id" as id, "namespace" as namespace
),
bells as materialized (
  select bool_and(case when pg_try_advisory_xact_lock_shared(hashtextextended('postrider:public.outbox_messages:' || namespace, 0)) then true else false end)
     and pg_try_advisory_xact_lock_shared(hashtextextended('postrider:public.outbox_messages', 0)) as silent
  from (select distinct namespace from written) as namespaces
),
rung as materialized (
  select pg_notify('postrider', 'postrider:public.outbox_messages') from bells where not silent
)
select written.id, exists (select from rung) as rang from written;

