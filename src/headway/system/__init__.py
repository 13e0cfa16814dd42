"""Facts and levers of this computer: procfs, cgroups, signals, process trees. No decisions."""
