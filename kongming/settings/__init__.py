"""Settings of programs: declared once, checked, and listed for the manual."""
