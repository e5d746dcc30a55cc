"""Records: frozen, checked in their constructors, and the only vocabulary of all other packages."""
