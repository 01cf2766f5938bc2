"""The same graph in the forms other libraries and tools expect; each is imported only when it is asked for."""
