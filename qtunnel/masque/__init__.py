"""CONNECT-IP (RFC 9484), capsules and HTTP Datagrams (RFC 9297), sans-IO."""
