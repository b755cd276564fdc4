"""An emulator of links in user space, for kernels without netem: delay, rate, queue, loss and reordering.

The packets stay in the kernel, held at a router's egress by NFQUEUE; this process sees a few bytes of each and
says when it may go on. One process serves any number of links in any number of namespaces.
"""
