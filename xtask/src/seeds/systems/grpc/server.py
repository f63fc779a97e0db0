"""A gRPC service of one method that fails, waits or calls the next one, and prints what it counted when it is ended.

Messages are bytes, so that no code has to be generated. What the service does is in the request: a JSON object.
"""

import json
import signal
import sys
import threading
import time
from concurrent import futures

import grpc

METHOD = "/orders.Orders/Get"
counts = {"calls": 0, "retries": 0, "left_ms": [], "cancelled": 0, "previous": {}, "attempts": {}}
lock = threading.Lock()
fail_always = threading.Event()


def remaining(context):
    """Seconds until the caller's deadline, or None if it has none: gRPC then says so by a very large number."""
    left = context.time_remaining()
    return left if left is not None and left < 1e6 else None


def handle(request, context, downstream):
    wish = json.loads(request)
    previous = int(dict(context.invocation_metadata()).get("grpc-previous-rpc-attempts", 0))
    left = remaining(context)
    with lock:
        counts["calls"] += 1
        counts["retries"] += previous > 0
        counts["previous"][str(previous)] = counts["previous"].get(str(previous), 0) + 1
        # By the call, which the client numbers from 1.
        counts["attempts"][wish["number"]] = counts["attempts"].get(wish["number"], 0) + 1
        if left is not None:
            counts["left_ms"].append(round(left * 1000))
    if wish.get("pushback") is not None:
        context.set_trailing_metadata((("grpc-retry-pushback-ms", str(wish["pushback"])),))
    if wish.get("wait_ms"):
        time.sleep(wish["wait_ms"] / 1000)
        if not context.is_active():
            with lock:
                counts["cancelled"] += 1
    if fail_always.is_set() or wish.get("fail"):
        context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
    if downstream is not None:
        # What is left now, and not what was left when the call came; gRPC writes it into grpc-timeout. Without it a call has no deadline.
        return downstream(request, timeout=None if wish.get("keeps_deadline") else remaining(context))
    return request


def main():
    port, next_port = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    downstream = None
    if next_port:
        channel = grpc.insecure_channel(f"127.0.0.1:{next_port}", options=[("grpc.enable_retries", 0)])
        downstream = channel.unary_unary(METHOD)
    service = {"Get": grpc.unary_unary_rpc_method_handler(lambda request, context: handle(request, context, downstream))}
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=32))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("orders.Orders", service),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGUSR1, lambda *_: fail_always.set())
    signal.signal(signal.SIGUSR2, lambda *_: fail_always.clear())
    server.start()
    # A wait without a limit would not let Python run the signals' handlers.
    while not stop.wait(0.1):
        pass
    server.stop(0.2).wait()
    print(json.dumps(counts))


main()
