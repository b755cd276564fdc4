"""What `qtunnel doctor` looks at: one module a subject, each check a function that returns findings."""
