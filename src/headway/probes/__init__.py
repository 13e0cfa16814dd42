"""How Headway learns about machines and jobs."""
