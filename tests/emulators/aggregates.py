# The KPL's aggregates as PyPI's aws-kinesis-agg writes and reads them.
# usage: python aggregates.py
# Each line of standard input is a JSON object. {"write": [[KEY, HASH_KEY or null, HEX] ...]} is answered by a line of
# JSON with the aggregate in hexadecimal, {"read": HEX} by one with [[KEY, HEX] ...].
import base64
import json
import sys

from aws_kinesis_agg.aggregator import RecordAggregator
from aws_kinesis_agg.deaggregator import deaggregate_records


def write(records):
    aggregator = RecordAggregator()
    for key, hash_key, data in records:
        full = aggregator.add_user_record(key, bytes.fromhex(data), hash_key)
        assert full is None, "one aggregate is enough"
    _, _, aggregate = aggregator.clear_and_get().get_contents()
    return aggregate.hex()


def read(aggregate):
    record = {
        "kinesis": {
            "kinesisSchemaVersion": "1.0",
            "sequenceNumber": "1",
            "partitionKey": "a",
            "approximateArrivalTimestamp": 0,
            "data": base64.b64encode(bytes.fromhex(aggregate)),
        }
    }
    found = [record["kinesis"] for record in deaggregate_records([record])]
    assert all(record.get("aggregated") for record in found), "it is an aggregate"
    return [[record["partitionKey"], base64.b64decode(record["data"]).hex()] for record in found]


for line in sys.stdin:
    wanted = json.loads(line)
    answer = write(wanted["write"]) if "write" in wanted else read(wanted["read"])
    print(json.dumps(answer), flush=True)
