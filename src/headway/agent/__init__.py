"""What runs inside a job's process: the recorder (standard library only)."""
