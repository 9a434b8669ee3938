"""Reads CloudEvents as the sinks of brokers write them, with the official library; ends with an error at the first that
does not fit, or prints how many there were. Argument: a file of cases in JSON."""

import base64
import json
import sys

from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka
from cloudevents.core.formats.json import JSONFormat

cases = json.load(open(sys.argv[1]))
for case in cases:
    headers = {name: value.encode() for name, value in case["headers"]}
    message = KafkaMessage(headers=headers, key=None, value=base64.b64decode(case["body"]))
    event = from_kafka(message, JSONFormat())
    assert event.get_id() == case["id"], event.get_id()
    assert event.get_source() == "/postrider/shop", event.get_source()
    assert event.get_type() == "order.placed", event.get_type()
    assert event.get_specversion() == "1.0"
    assert event.get_subject() == "order-7", event.get_subject()
    assert event.get_time().isoformat() == "2026-11-16T08:00:00.250000+01:00", event.get_time()
    assert event.get_datacontenttype() == case["content_type"], event.get_datacontenttype()
    assert event.get_extension("partitionkey") == "order-7"
    assert event.get_extension("namespace") == "shop"
    payload = base64.b64decode(case["payload"])
    data = event.get_data()
    if case["is_json"]:
        assert data == json.loads(payload), data
    else:
        assert bytes(data) == payload, data
print(len(cases))
