"""The process itself: its clock, its background work, and what it does where that fails."""
