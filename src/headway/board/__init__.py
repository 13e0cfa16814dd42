"""A run in the browser, live: what `headway serve` shows. Read only, for this computer alone."""
