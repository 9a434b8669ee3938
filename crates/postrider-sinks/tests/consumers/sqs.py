"""Reads a queue until it has so many different messages, and prints each as a JSON line."""

import base64
import json
import sys
import time

import boto3

endpoint, queue, count = sys.argv[1:4]
sqs = boto3.client(
    "sqs",
    endpoint_url=endpoint,
    region_name="eu-central-1",
    aws_access_key_id="test",
    aws_secret_access_key="test",
)
url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
seen = set()
end = time.monotonic() + 120
while len(seen) < int(count):
    if time.monotonic() > end:
        sys.exit(f"only {len(seen)} messages came")
    answer = sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"], WaitTimeSeconds=1
    )
    for message in answer.get("Messages", []):
        attributes = {
            name: value["StringValue"]
            for name, value in message.get("MessageAttributes", {}).items()
        }
        headers = json.loads(attributes.pop("headers", "{}"))
        body = message["Body"].encode()
        if attributes.pop("content-encoding", None) == "base64":
            body = base64.b64decode(body)
        headers |= attributes
        seen.add(headers["event_id"])
        line = {
            "id": headers["event_id"],
            "body": base64.b64encode(body).decode(),
            "headers": headers,
        }
        print(json.dumps(line))
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
