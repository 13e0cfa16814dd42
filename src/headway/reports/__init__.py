"""Where the time went. Reports return data; the command line and the pages show it."""
