"""Adapters: how each tunnel is started, entered and stopped. One page each."""
