"""The part of llmsim that runs for real, on torch: programs, small clusters of namespaces, calibration, validation.

Importing this imports no torch; its modules do, where they need it.
"""
