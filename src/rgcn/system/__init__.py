"""The machine: files, compression, memory, threads, environment variables, progress bars, terminal, formatting."""
