"""The kernel's edge: TUN, UDP sockets, netlink, privileges."""
