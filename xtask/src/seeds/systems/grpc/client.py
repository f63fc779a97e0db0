"""Calls a gRPC service so many times, with a service config, and prints what became of the calls.

Arguments: PORT CONFIG STEPS. CONFIG is a service config as JSON; STEPS a JSON list of {"count", "wish", "timeout", "rate"}.
"""

import json
import sys
import time

import grpc

METHOD = "/orders.Orders/Get"


def main():
    port, config, steps = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.enable_retries", 1), ("grpc.service_config", config)])
    call = channel.unary_unary(METHOD)
    results = []
    number = 0
    for step in steps:
        outcome, took = {}, []
        for _ in range(step["count"]):
            number += 1
            begin = time.monotonic()
            try:
                call(json.dumps({**step.get("wish", {}), "number": number}).encode(), timeout=step.get("timeout"))
                code = "OK"
            except grpc.RpcError as error:
                code = error.code().name
            took.append((time.monotonic() - begin) * 1000)
            outcome[code] = outcome.get(code, 0) + 1
            if step.get("rate"):
                time.sleep(max(0.0, 1 / step["rate"] - (time.monotonic() - begin)))
        took.sort()
        results.append({"answers": outcome, "median_ms": took[len(took) // 2], "max_ms": took[-1]})
    print(json.dumps(results))


main()
