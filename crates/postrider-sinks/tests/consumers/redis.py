# Reads all entries of a stream with the official client, in a consumer group, and prints one JSON line for each: body in
# base64, fields. Arguments: port, stream, number of entries.
import base64, json, sys
import redis

client = redis.Redis(host="127.0.0.1", port=int(sys.argv[1]))
stream, left = sys.argv[2], int(sys.argv[3])
client.xgroup_create(stream, "readers", id="0", mkstream=True)
while left > 0:
    answer = client.xreadgroup("readers", "one", {stream: ">"}, count=50, block=20_000)
    if not answer:
        sys.exit(f"{left} entries are missing")
    streams = answer.items() if isinstance(answer, dict) else answer
    for _, entries in streams:
        if entries and isinstance(entries[0], list):
            entries = entries[0]
        for entry, fields in entries:
            body = base64.b64encode(fields.pop(b"payload")).decode()
            print(json.dumps({"body": body, "headers": {k.decode(): v.decode() for k, v in fields.items()}}))
            client.xack(stream, "readers", entry)
            left -= 1
