"""Path MTU discovery in virtual time: thousands of connections over difficult paths, each from a seed."""
