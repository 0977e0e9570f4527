"""What does the user type? One file per command; exit statuses are mapped in one place (``main``)."""
