"""Who goes where and when: planners and queue policies, one module a leaf."""
