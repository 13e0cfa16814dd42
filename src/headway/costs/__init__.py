"""What things cost: how long a job takes beside others, and what finding out is worth."""
