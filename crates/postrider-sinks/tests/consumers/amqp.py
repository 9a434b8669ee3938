"""Reads a queue until it has so many messages, and prints each as a JSON line."""

import base64
import json
import sys

import pika

port, user, password, queue, count = sys.argv[1:6]
credentials = pika.PlainCredentials(user, password)
connection = pika.BlockingConnection(
    pika.ConnectionParameters("127.0.0.1", int(port), credentials=credentials)
)
channel = connection.channel()
left = int(count)
for _, properties, body in channel.consume(queue, auto_ack=True, inactivity_timeout=60):
    if properties is None:
        sys.exit(f"{left} messages did not come")
    line = {
        "id": properties.message_id,
        "body": base64.b64encode(body).decode(),
        "headers": properties.headers,
        "type": properties.type,
        "content_type": properties.content_type,
        "delivery_mode": properties.delivery_mode,
    }
    print(json.dumps(line))
    left -= 1
    if left == 0:
        break
connection.close()
