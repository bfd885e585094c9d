"""The client of the guest, the first process of every sandbox: commands and files inside. The wire is ``docs/guest-protocol.md``."""
