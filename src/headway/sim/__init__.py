"""Time itself: one deterministic event loop, shared resources, and the loop that drives a policy."""
