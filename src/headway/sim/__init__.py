"""Time itself: one deterministic event loop, shared resources, and drive(policy, world)."""
