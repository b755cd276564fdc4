"""Loss recovery and congestion control for one packet number space (RFC 9002)."""
