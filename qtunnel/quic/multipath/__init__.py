"""Several paths in one connection (RFC 10069): frames, limits, connection ids, life and health of each path."""
