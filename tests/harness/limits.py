"""What the shared server of the black-box tests is set to."""

import os

#: What it runs sandboxes with: SANDBOXHUB_ENGINE, as for any server.
ENGINE = os.environ.get("SANDBOXHUB_ENGINE", "oci")
MIB = 1 << 20
RUNTIMES = ("gvisor", "runc")
MAX_FILE = 128 * MIB
MAX_BODY = 4 * MIB
EXEC_TIMEOUT = 100  #: seconds
