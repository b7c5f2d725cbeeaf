"""The simulated driver: sessions, handles, events and faults, and the library that pynvml loads."""
