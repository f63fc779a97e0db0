"""A service that reads from Redis and, when Redis does not answer, from MySQL: GET /item/N.

Arguments: PORT REDIS MYSQL KIND [POOL]. POOL is the most connections to Redis. KIND is `storm` (short timeout, three retries, every miss to MySQL on a connection of its own) or
`guarded` (one try, pools with a limit, and at most two requests at a time that may ask MySQL; the others fail at once).
"""

import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pymysql
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

counts = {"redis_errors": 0, "pool_empty": 0, "mysql_asked": 0, "mysql_1040": 0, "mysql_errors": 0, "refused": 0}
lock = threading.Lock()


def add(name):
    with lock:
        counts[name] += 1


def main():
    port, redis_port, mysql_port, kind = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    storm = kind == "storm"
    size = int(sys.argv[5]) if len(sys.argv) > 5 else 50
    pool = redis.BlockingConnectionPool(
        host="127.0.0.1",
        port=redis_port,
        max_connections=size,
        timeout=0.1,
        socket_timeout=0.1,
        socket_connect_timeout=0.1,
        retry=Retry(NoBackoff(), 3 if storm else 0),
        retry_on_timeout=storm,
    )
    cache = redis.Redis(connection_pool=pool)
    places = threading.Semaphore(2)

    # Of the guarded service, which keeps its connections: there are no more than its places.
    idle = []

    def from_mysql(number):
        add("mysql_asked")
        with lock:
            connection = idle.pop() if idle else None
        if connection is None:
            connection = pymysql.connect(host="127.0.0.1", port=mysql_port, user="app", password="app", connect_timeout=2)
        is_sound = False
        try:
            with connection.cursor() as cursor:
                # A row that takes its time: what a cache is for.
                cursor.execute("SELECT %s, SLEEP(0.2)", (number,))
                text = str(cursor.fetchone()[0])
            is_sound = True
            return text
        finally:
            if is_sound and not storm:
                with lock:
                    idle.append(connection)
            else:
                connection.close()

    def answer(number):
        try:
            value = cache.get(f"item:{number % 100}")
            if value is not None:
                return 200, value.decode()
        except redis.RedisError as error:
            # What the pool says when nobody has given a connection back in time.
            add("pool_empty" if "No connection available" in str(error) else "redis_errors")
        if not storm and not places.acquire(blocking=False):
            add("refused")
            return 503, "busy"
        try:
            return 200, from_mysql(number)
        except pymysql.MySQLError as error:
            add("mysql_1040" if error.args and error.args[0] == 1040 else "mysql_errors")
            return 500, "no database"
        finally:
            if not storm:
                places.release()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body in one segment.
        wbufsize = 1 << 16

        def do_GET(self):
            number = int("".join(c for c in self.path if c.isdigit()) or 0)
            status, text = answer(number)
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 1024

    server = Server(("127.0.0.1", port), Handler)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while not stop.wait(0.1):
        pass
    print(json.dumps(counts))
    sys.stdout.flush()
    # Requests that still wait for a database do not keep the process.
    os._exit(0)


main()
