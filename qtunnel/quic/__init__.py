"""QUIC and HTTP/3: the one package that knows aioquic."""
