"""Path MTU discovery for one path (RFC 8899)."""
