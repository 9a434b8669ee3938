"""Reads a topic of Kafka from its beginning and prints each record as a line of JSON.

Arguments: the broker, the topic, and the number of different messages to wait for.
"""

import base64
import json
import sys
import time

from kafka import KafkaConsumer, TopicPartition


def line(record):
    return json.dumps(
        {
            "body": base64.b64encode(record.value).decode(),
            "key": None if record.key is None else record.key.decode(),
            "headers": {name: value.decode() for name, value in record.headers},
            "partition": record.partition,
            "timestamp": record.timestamp,
        }
    )


def main():
    broker, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    # With no version it begins with a question that librdkafka's mock cluster does not answer in the form it expects.
    consumer = KafkaConsumer(bootstrap_servers=broker, enable_auto_commit=False, api_version=(2, 3))
    partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
    consumer.assign(partitions)
    consumer.seek_to_beginning()
    ids, end = set(), time.monotonic() + 60
    while len(ids) < count:
        if time.monotonic() > end:
            sys.exit(f"{len(ids)} of {count} messages arrived in time")
        for records in consumer.poll(timeout_ms=200).values():
            for record in records:
                ids.add(dict(record.headers)["event_id"])
                print(line(record))
    consumer.close()


main()
