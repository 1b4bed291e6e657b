"""Second floor: the daemon, the boards, the wire protocol, the client and the command line."""
