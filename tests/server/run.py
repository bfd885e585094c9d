"""Serve the test application as `manage.py serve` does. Usage: python -m tests.server.run PORT"""

import sys

from sandboxhub.server import serve
from tests.server.app import application

if __name__ == "__main__":
    serve(
        application, host="127.0.0.1", port=int(sys.argv[1]), on_listening=lambda host, port: print(f"listening {host} {port}", flush=True)
    )
    print("served", flush=True)
