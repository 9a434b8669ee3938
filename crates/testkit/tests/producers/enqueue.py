"""Calls postrider_enqueue as a Python producer would: one line of JSON in, one line out, per message."""

import json
import sys

import psycopg

CALL = """
select id::text, is_new from postrider_enqueue(
  namespace => %(namespace)s, topic => %(topic)s, payload => %(payload)s::jsonb, key => %(key)s,
  tenant_id => %(tenant_id)s::uuid, dedupe_key => %(dedupe_key)s, headers => %(headers)s::jsonb,
  deliver_at => to_timestamp(%(deliver_at)s), max_attempts => %(max_attempts)s::int,
  payload_bytes => decode(%(payload_bytes)s, 'hex'), content_type => %(content_type)s)
"""


def offer(connection, arguments):
    try:
        with connection.transaction():  # a savepoint, so that the transaction goes on after a refusal
            id, is_new = connection.execute(CALL, arguments).fetchone()
        return {"id": id, "is_new": is_new}
    except psycopg.Error as error:
        hint = error.diag.message_hint if error.sqlstate else None
        return {"sqlstate": error.sqlstate, "message": str(error).splitlines()[0], "hint": hint}


with psycopg.connect(sys.argv[1]) as connection:
    for line in sys.stdin:
        print(json.dumps(offer(connection, json.loads(line))))
