"""IP over HTTP/3."""
