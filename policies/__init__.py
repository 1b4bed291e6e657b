"""First floor: table + request + board state in, operating point out."""
