"""What the shared server of the black-box tests is set to."""

MIB = 1 << 20
RUNTIMES = ("gvisor", "runc")
MAX_FILE = 128 * MIB
MAX_BODY = 4 * MIB
EXEC_TIMEOUT = 100  #: seconds
