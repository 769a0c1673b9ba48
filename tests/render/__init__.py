"""Every renderer, on made reports."""
