"""Who carries a Plan out: one module (or package) an engine, found by its name."""
