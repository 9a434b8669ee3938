"""Checks what the sink http sent, with the official libraries of Standard Webhooks and CloudEvents.

Reads lines of JSON: {"format", "headers", "body" (base64), "keys", "wrong_key", "expected"}. Ends with an error at the first
that does not fit.
"""

import base64
import json
import sys

from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from standardwebhooks.webhooks import Webhook, WebhookVerificationError, hmac_data


def is_text(body):
    try:
        body.decode()
        return True
    except UnicodeDecodeError:
        return False


def check_signature(case, headers, body):
    for key in case["keys"]:
        if is_text(body):
            Webhook(key).verify(body, headers, json_parse=False)
        else:
            # The library decodes the body as UTF-8 first, which bytes need not be; the rest is its own code.
            signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
            raw = base64.b64decode(key.removeprefix("whsec_"))
            wanted = "v1," + base64.b64encode(hmac_data(raw, signed)).decode()
            assert wanted in headers["webhook-signature"].split(" "), "signature of bytes"
    assert len(headers["webhook-signature"].split(" ")) == len(case["keys"])
    if not is_text(body):
        return
    for what, key, changed, text in [
        ("another key", case["wrong_key"], {}, body),
        ("another body", case["keys"][0], {}, body + b" "),
        ("another id", case["keys"][0], {"webhook-id": "0"}, body),
        ("an old time", case["keys"][0], {"webhook-timestamp": "1700000000"}, body),
    ]:
        try:
            Webhook(key).verify(text, {**headers, **changed}, json_parse=False)
        except WebhookVerificationError:
            continue
        raise AssertionError(f"accepted with {what}")


def check_event(case, headers, body):
    event = from_http_event(HTTPMessage(headers=headers, body=body))
    expected = case["expected"]
    found = {
        "id": event.get_id(),
        "source": event.get_source(),
        "type": event.get_type(),
        "subject": event.get_subject(),
        "specversion": event.get_specversion(),
        "datacontenttype": event.get_datacontenttype(),
        "time": event.get_time().isoformat(timespec="microseconds").replace("+00:00", "Z"),
    }
    for name in ["namespace", "partitionkey", "tenantid", "dedupekey", "attempt", "replayed", "traceparent", "tracestate"]:
        value = event.get_extension(name)
        found[name] = str(value) if name in ("attempt", "replayed") and value is not None else value
    assert found == expected["attributes"], f"{found} is not {expected['attributes']}"
    data = event.get_data()
    if "json" in expected:
        data = json.loads(data) if isinstance(data, (bytes, str)) else data
        assert data == expected["json"], f"{data!r}"
    else:
        # The library hands out text where bytes happen to be UTF-8, and nothing where there are none.
        data = data.encode() if isinstance(data, str) else data or b""
        assert data == base64.b64decode(expected["bytes"]), f"{data!r}"


cases = 0
for line in sys.stdin:
    case = json.loads(line)
    body = base64.b64decode(case["body"])
    check_signature(case, case["headers"], body)
    if case["format"] != "plain":
        check_event(case, case["headers"], body)
    cases += 1
print(cases)
