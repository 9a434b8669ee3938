"""Reads metrics with the parser of the official Prometheus client, and prints families with their values as JSON."""
import json
import sys

from prometheus_client.parser import text_string_to_metric_families

families = {}
with open(sys.argv[1], encoding="utf-8") as text:
    for family in text_string_to_metric_families(text.read()):
        values = families.setdefault(family.name, {})
        for sample in family.samples:
            values[sample.labels.get("outcome", sample.name)] = sample.value
print(json.dumps(families))
