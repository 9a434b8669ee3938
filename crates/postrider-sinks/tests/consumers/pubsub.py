"""Reads a subscription of Pub/Sub at PUBSUB_EMULATOR_HOST and prints each message as a line of JSON.

Arguments: the project, the subscription, the number of different messages to wait for, and the longest time in seconds.
"""

import base64
import json
import sys
import time

from google.api_core.exceptions import DeadlineExceeded
from google.cloud import pubsub_v1


def line(message):
    return json.dumps(
        {
            "body": base64.b64encode(message.data).decode(),
            "key": message.ordering_key,
            "headers": dict(message.attributes),
        }
    )


def main():
    project, name, count, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    subscriber = pubsub_v1.SubscriberClient()
    subscription = subscriber.subscription_path(project, name)
    ids, end = set(), time.monotonic() + seconds
    while len(ids) < count:
        if time.monotonic() > end:
            sys.exit(f"{len(ids)} of {count} messages arrived in time")
        try:
            pulled = subscriber.pull(subscription=subscription, max_messages=100, timeout=5, retry=None)
        except DeadlineExceeded:
            continue
        for received in pulled.received_messages:
            ids.add(received.message.attributes["event_id"])
            print(line(received.message))
        if pulled.received_messages:
            ack_ids = [received.ack_id for received in pulled.received_messages]
            subscriber.acknowledge(subscription=subscription, ack_ids=ack_ids)
    subscriber.close()


main()
