"""HTML pages: a template environment, formats of numbers, and figures as inline SVG."""
