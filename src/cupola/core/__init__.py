"""Arrays in, arrays out: the mathematics shared by the algorithms."""
