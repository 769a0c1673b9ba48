"""Several processes that are measured together: how they are started, meet, and become one measurement."""
