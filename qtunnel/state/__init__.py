"""What is kept on disk: identity, users, leases, profiles."""
