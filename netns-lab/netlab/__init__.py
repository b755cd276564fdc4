"""The lab: networks of namespaces on one machine, with real kernel routers, and experiments on them."""
