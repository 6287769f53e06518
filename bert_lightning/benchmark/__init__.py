"""Measurements that the project's claims rest on."""
